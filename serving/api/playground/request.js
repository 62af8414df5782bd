// What the form asks: as a body of /v1/rank, as a command, and as a link.

export function contextOf(form) {
  const context = {};
  for (const input of form.querySelectorAll("input[data-name]")) {
    const written = input.value.trim();
    if (written === "") continue;
    context[input.dataset.name] = input.dataset.kind === "json" ? parsed(written, input.dataset.name) : input.value;
  }
  return context;
}

export function itemsOf(lines) {
  const written = lines.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  return written.map((line, index) => (line.startsWith("{") ? parsed(line, `line ${index + 1}`) : line));
}

function parsed(written, where) {
  try {
    return JSON.parse(written);
  } catch (error) {
    throw new Error(`${where} is not JSON: ${error.message}`);
  }
}

/** The answer to a body. Errors: with the problem's words. */
export async function answerTo(body, key, signal) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch("/v1/rank", { method: "POST", headers, body: JSON.stringify(body), signal });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${answer.title}: ${answer.detail}${answer.pointer ? ` (${answer.pointer})` : ""}`);
  return answer;
}

/** The body as a command; a key stays out of it. */
export function curlOf(body, needsKey) {
  // inside single quotes a shell reads everything as it stands, except the quote
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  const key = needsKey ? ` -H "Authorization: Bearer $KEY"` : "";
  return `curl -s ${location.origin}/v1/rank -H 'Content-Type: application/json'${key} -d '${quoted}'`;
}

/** The page's address with what the form holds behind its #, which a browser sends to nobody. */
export function linkTo(state) {
  return `${location.origin}${location.pathname}#${encodeURIComponent(JSON.stringify(state))}`;
}

/** What a link of `linkTo` holds; null where the address has none, or something else. */
export function stateOfLink() {
  try {
    const state = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    return typeof state === "object" ? state : null;
  } catch {
    return null;
  }
}
