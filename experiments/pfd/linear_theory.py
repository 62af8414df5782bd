"""Errors of linear models in closed form: Theorems 1 and 2 of Yang et al. 2022, and their neglected terms, exactly.

linear_simulation.py says what a draw is, and what n, m, x, z, u, v* and w* are.

**What the theorems say.** With s^2 = sigma^2 + |v*|^2 - |v_z|^2, the variance of y that x and z leave unexplained:

    least squares    d_x (sigma^2 + |v*|^2) / (n - d_x - 1)                               exact, proof of Theorem 1
    PFD, leading     d_x s^2 / (n - d_x - d_z - 1) + d_x |v_z|^2 / (n + m - d_x - 1)      Theorem 2

and PFD's neglected terms are O(1 / (n m)). Theorem 1 is the case d_z = d_u in orders of magnitude.

**The neglected terms, exactly.** PFD misses w* by T1 + T2 + T3: the regression over all of z.v_z on x, the teacher's
error in w*, and the regression over all of z.(its error in v_z) on x. E|T1|^2 and E|T2|^2 are the leading terms, T1 is
uncorrelated with the rest, and the proof drops T3. But T3 is correlated with T2. Let W and W_a regress z on x over the
labelled and over all, and S be the labelled z's scatter about the former. Given x and z, the teacher's error in v_z has
covariance s^2 S^-1, and -s^2 W S^-1 with its error in w*: so E|T3|^2 = s^2 E tr(W_a S^-1 W_a') and E T2.T3 =
-s^2 E tr(W S^-1 W_a'). Given x, S is independent of W and W_a; E S^-1 = I / (n - d_x - d_z - 1), and E W_a W_a' =
E W W_a' = d_z I / (n + m - d_x - 1). Hence E|T3|^2 + 2 E T2.T3 = R - 2 R = -R with

    R = s^2 d_x d_z / ((n - d_x - d_z - 1)(n + m - d_x - 1))

The theorem overstates PFD's error by R. With m = 0 or d_z = 0, leading - R is least squares' error, as it must be.
"""

from dataclasses import dataclass

WHERE_THEY_DIFFER = """\
Theorem 2 gives its remainder as an order of magnitude. It is exactly
-s² d_x d_z / ((n - d_x - d_z - 1)(n + m - d_x - 1)), as `experiments/pfd/linear_theory.py` derives: the
part of PFD's error that the proof drops adds that much, and its correlation with another part takes away twice as
much. So:

- The theorem overstates PFD's error: the more so the fewer unlabelled examples there are and, here, the larger d_z.
- The remainder is of order 1/(n (n + m)). At m = 0, PFD is least squares, and the leading terms are farthest off.
- PFD's error less that of least squares is
  m / ((n - d_x - 1)(n + m - d_x - 1)) · (s² d_z / (n - d_x - d_z - 1) - |v_z|²). Its sign does not depend on m: PFD
  wins where z explains more than its d_z coefficients cost the teacher, and more unlabelled examples widen the
  difference either way. Theorem 1's orders of magnitude hide that cost."""


@dataclass(frozen=True)
class World:
    """What the draws of one setting have in common, and what the theory says of them."""

    labelled: int
    unlabelled: int
    sigma: float
    regular: int
    effects: tuple[float, ...]

    @property
    def hidden(self) -> int:
        """d_u."""
        return len(self.effects)

    def explained(self, privileged: int) -> float:
        """|v_z|^2 for d_z = privileged."""
        return sum(effect**2 for effect in self.effects[:privileged])

    def unexplained(self, privileged: int) -> float:
        """s^2."""
        return self.sigma**2 + sum(effect**2 for effect in self.effects[privileged:])

    def least_squares(self) -> float:
        return self.regular * self.unexplained(0) / (self.labelled - self.regular - 1)

    def leading(self, privileged: int) -> float:
        """Theorem 2 without its remainder."""
        teacher, student = self._freedom(privileged)
        return self.regular * (self.unexplained(privileged) / teacher + self.explained(privileged) / student)

    def neglected(self, privileged: int) -> float:
        """-R, which Theorem 2 leaves out."""
        teacher, student = self._freedom(privileged)
        return -self.unexplained(privileged) * self.regular * privileged / (teacher * student)

    def exact(self, privileged: int) -> float:
        return self.leading(privileged) + self.neglected(privileged)

    def _freedom(self, privileged: int) -> tuple[int, int]:
        """The denominators: of the teacher, who sees labels only; of the student, who sees every example."""
        student = self.labelled + self.unlabelled - self.regular - 1
        return self.labelled - self.regular - privileged - 1, student
