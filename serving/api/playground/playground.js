import { answerTo, contextOf, curlOf, itemsOf, linkTo, stateOfLink } from "./request.js";
import { drawMoves, fullBar, glide, moveOf, rowOf, swappedPairs, topsOf } from "./ranking.js";

const PAUSE = 350; // milliseconds without typing, after which is ranked

const [form, itemLines, sample, version, beside, keyInput] = ["form", "items", "sample", "version", "beside", "key"].map(at);
const [results, resultsBeside, moves] = ["results", "results-beside", "moves"].map(at);
const [status, curl, back] = ["status", "curl", "back"].map(at);
const fields = [...form.querySelectorAll("input[data-name]")];
let running = new AbortController();
let pause = 0;
let modelsOrder = [];

function at(id) {
  return document.getElementById(id);
}

// --- the form

function stateOf() {
  const context = Object.fromEntries(fields.map((field) => [field.dataset.name, field.value]));
  return { context, lines: itemLines.value, version: version.value, beside: beside.value };
}

function fill({ context = {}, lines = "", ...pins }) {
  for (const field of fields) field.value = context?.[field.dataset.name] ?? "";
  itemLines.value = lines;
  for (const [name, select] of [["version", version], ["beside", beside]]) {
    if (name in pins) select.value = [...select.options].some((option) => option.value === pins[name]) ? pins[name] : "";
  }
}

function bodyOf(pin) {
  const body = { ...contextOf(form), items: itemsOf(itemLines.value) };
  return pin === "" ? body : { ...body, model_version: Number(pin) };
}

function showCurl() {
  try {
    curl.textContent = curlOf(bodyOf(version.value), keyInput !== null);
  } catch (error) {
    curl.textContent = error.message;
  }
}

function say(message, isWrong = false) {
  status.textContent = message;
  status.classList.toggle("wrong", isWrong);
}

// --- ranking

async function rank() {
  clearTimeout(pause);
  running.abort();
  running = new AbortController();
  const { signal } = running;
  try {
    const pins = beside.value === "" ? [version.value] : [version.value, beside.value];
    const bodies = pins.map(bodyOf);
    const began = performance.now();
    const answers = await Promise.all(bodies.map((body) => answerTo({ ...body, debug: true }, keyInput?.value, signal)));
    const milliseconds = performance.now() - began;
    show(answers, bodies[0].items);
    tell(answers, milliseconds);
  } catch (error) {
    if (signal.aborted) return;
    results.parentElement.parentElement.classList.add("stale");
    say(error.message, true);
  }
}

function tell([answer, other], milliseconds) {
  const { pairs, tokens, truncated } = answer.usage;
  const cut = truncated > 0 ? `, ${truncated} read in part` : "";
  const said = `${pairs} ${pairs === 1 ? "item" : "items"} in ${milliseconds.toFixed(1)} ms, ${tokens} tokens${cut}.`;
  if (!other) return say(said);
  const moved = swappedPairs(orderOf(other), orderOf(answer));
  say(`${said} ${difference(moved, pairs)} between versions ${answer.model.version} and ${other.model.version}.`);
}

function orderOf(answer) {
  return answer.results.map((result) => `${result.index}`);
}

function difference(swapped, items) {
  const pairs = (items * (items - 1)) / 2;
  return `${swapped} of ${pairs} ${pairs === 1 ? "pair" : "pairs"} the other way round`;
}

function show(answers, items) {
  const [answer, other] = answers;
  const full = fullBar(answers);
  at("full").textContent = full;
  at("legend").hidden = false;
  at("marks").hidden = Object.keys(answer.results[0].debug.words).length === 0;
  back.hidden = true;
  modelsOrder = orderOf(answer);
  draw(results, answer, items, full, (row) => !other && row.append(buttonsOf(row)));
  const where = `in version ${answer.model.version}`;
  draw(resultsBeside, other ?? { results: [] }, items, full, (row, place) => {
    row.firstChild.append(moveOf(modelsOrder.indexOf(row.dataset.index) + 1, place, where));
  });
  for (const [heading, of] of [["results-of", answer], ["beside-of", other]]) {
    at(heading).hidden = !other;
    at(heading).textContent = other ? `Version ${of.model.version}` : "";
  }
  resultsBeside.hidden = !other;
  moves.toggleAttribute("hidden", !other);
  const lists = at("lists");
  lists.classList.toggle("two", Boolean(other));
  lists.classList.remove("stale");
  redrawMoves();
}

function draw(list, answer, items, full, finish) {
  const before = topsOf(list);
  const names = new Set(fields.map((field) => field.dataset.name));
  list.replaceChildren(...answer.results.map((result, at) => {
    const row = rowOf(result, at + 1, items[result.index], full, names);
    finish(row, at + 1);
    return row;
  }));
  glide(list, before);
}

function redrawMoves() {
  if (!resultsBeside.hidden) drawMoves(moves, results, resultsBeside);
}

// --- an order of one's own

function buttonsOf(row) {
  const buttons = document.createElement("span");
  buttons.className = "buttons";
  for (const [sign, by, word] of [["▲", -1, "up"], ["▼", 1, "down"]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = sign;
    button.ariaLabel = `Move ${word}: ${row.querySelector(".what").textContent}`;
    button.addEventListener("click", () => move(row, by, button));
    buttons.append(button);
  }
  return buttons;
}

function move(row, by, button) {
  const rows = [...results.children];
  const to = rows.indexOf(row) + by;
  if (to < 0 || to >= rows.length) return;
  const before = topsOf(results);
  if (by < 0) rows[to].before(row);
  else rows[to].after(row);
  glide(results, before);
  button.focus();
  tellOwnOrder(to + 1);
}

function tellOwnOrder(place) {
  const order = [...results.children].map((row) => row.dataset.index);
  [...results.children].forEach((row, at) => {
    const from = modelsOrder.indexOf(row.dataset.index) + 1;
    row.firstChild.replaceChildren(`${at + 1}`, ...(from === at + 1 ? [] : [moveOf(from, at + 1, "by the model")]));
  });
  const swapped = swappedPairs(order, modelsOrder);
  back.hidden = swapped === 0;
  say(`Place ${place}. Your order against the model's: ${difference(swapped, order.length)}.`);
}

back.addEventListener("click", () => {
  const before = topsOf(results);
  const rows = new Map([...results.children].map((row) => [row.dataset.index, row]));
  results.replaceChildren(...modelsOrder.map((index) => rows.get(index)));
  glide(results, before);
  tellOwnOrder(1);
  say("The model's order.");
  results.querySelector("button").focus();
});

// --- what is typed, picked and pressed

form.addEventListener("submit", (event) => {
  event.preventDefault();
  rank();
});
form.addEventListener("input", (event) => {
  showCurl();
  clearTimeout(pause);
  if (event.target !== keyInput && keyInput?.value !== "") pause = setTimeout(rank, PAUSE); // never with half a key
});
itemLines.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    rank();
  }
});
sample?.addEventListener("input", () => fill(JSON.parse(sample.value)));
for (const kind of ["pointerover", "pointerout"]) {
  at("lists").addEventListener(kind, (event) => {
    const row = event.target.closest("li");
    for (const one of row ? document.querySelectorAll(`#lists.two [data-index="${row.dataset.index}"]`) : []) {
      one.classList.toggle("lit", kind === "pointerover");
    }
  });
}
addEventListener("resize", redrawMoves);

function copies(button, written) {
  button.addEventListener("click", async () => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(written());
      button.textContent = "Copied";
    } catch {
      // without a clipboard (plain HTTP from another machine) it is shown to be copied by hand
      curl.textContent = written();
      getSelection().selectAllChildren(curl);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = before; }, 1500);
  });
}
copies(at("copy"), () => curl.textContent);
copies(at("share"), () => linkTo(stateOf()));

const linked = stateOfLink();
if (linked) fill(linked);
showCurl();
if (!keyInput) rank();
