"use strict";

// Text of the page reaches the document as text only (textContent), never as markup.

const form = document.getElementById("form");
const itemLines = document.getElementById("items");
const status = document.getElementById("status");
const results = document.getElementById("results");
const curl = document.getElementById("curl");
const rankButton = document.getElementById("rank");
const keyInput = document.getElementById("key"); // only where the gateway asks for a key
const copyButton = document.getElementById("copy");

function contextOf() {
  const context = {};
  for (const input of form.querySelectorAll("input[data-name]")) {
    const written = input.value.trim();
    if (written === "") continue;
    context[input.dataset.name] = input.dataset.kind === "json" ? parsed(written, input.dataset.name) : input.value;
  }
  return context;
}

function itemsOf() {
  const lines = itemLines.value.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  return lines.map((line, index) => (line.startsWith("{") ? parsed(line, `line ${index + 1}`) : line));
}

function parsed(written, where) {
  try {
    return JSON.parse(written);
  } catch (error) {
    throw new Error(`${where} is not JSON: ${error.message}`);
  }
}

function textOf(item) {
  if (typeof item === "string") return item;
  const { id, ...values } = item;
  const names = Object.keys(values);
  return names.length === 1 && names[0] === form.dataset.bare ? String(values[names[0]]) : JSON.stringify(values);
}

function showCurl() {
  let body;
  try {
    body = JSON.stringify({ ...contextOf(), items: itemsOf() });
  } catch (error) {
    curl.textContent = error.message;
    return;
  }
  // inside single quotes a shell reads everything as it stands, except the quote
  const quoted = body.replaceAll("'", "'\\''");
  const key = keyInput ? ` -H "Authorization: Bearer $KEY"` : ""; // the key itself stays in its field
  curl.textContent = `curl -s ${location.origin}/v1/rank -H 'Content-Type: application/json'${key} -d '${quoted}'`;
}

function say(message, isWrong = false) {
  status.textContent = message;
  status.classList.toggle("wrong", isWrong);
}

function rowOf(result, place, items) {
  const row = document.createElement("li");
  const bar = document.createElement("span");
  bar.className = "bar";
  bar.style.width = `${result.score * 100}%`;
  row.append(bar);
  for (const [name, text] of [["place", `${place}`], ["what", textOf(items[result.index])], ["score", result.score.toFixed(3)]]) {
    const cell = document.createElement("span");
    cell.className = name;
    cell.textContent = text;
    row.append(cell);
  }
  return row;
}

async function rank() {
  rankButton.disabled = true;
  results.replaceChildren();
  say("Ranking…");
  try {
    const items = itemsOf();
    const body = JSON.stringify({ ...contextOf(), items });
    const began = performance.now();
    const headers = { "Content-Type": "application/json" };
    if (keyInput) headers.Authorization = `Bearer ${keyInput.value}`;
    const response = await fetch("/v1/rank", { method: "POST", headers, body });
    const answer = await response.json();
    const milliseconds = performance.now() - began;
    if (!response.ok) {
      say(`${answer.title}: ${answer.detail}${answer.pointer ? ` (${answer.pointer})` : ""}`, true);
      return;
    }
    results.replaceChildren(...answer.results.map((result, index) => rowOf(result, index + 1, items)));
    const { pairs, tokens, truncated } = answer.usage;
    const cut = truncated > 0 ? `, ${truncated} read in part` : "";
    say(`${pairs} ${pairs === 1 ? "item" : "items"} in ${milliseconds.toFixed(1)} ms, ${tokens} tokens${cut}.`);
  } catch (error) {
    say(error.message, true);
  } finally {
    rankButton.disabled = false;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  rank();
});
form.addEventListener("input", showCurl);
itemLines.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    rank();
  }
});
copyButton.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(curl.textContent);
    copyButton.textContent = "Copied";
  } catch {
    // without a clipboard (plain HTTP from another machine) the command is selected instead
    getSelection().selectAllChildren(curl);
    copyButton.textContent = "Selected";
  }
  setTimeout(() => { copyButton.textContent = "Copy"; }, 1500);
});
showCurl();
