// Exchanges the token for the cookie; the token is held no longer than that.
const form = document.querySelector("form");
const problem = document.getElementById("problem");

async function ask(method, headers, next) {
  problem.hidden = true;
  try {
    const response = await fetch("/signin", { method, headers });
    if (response.ok) return location.assign(next);
    problem.textContent = (await response.json()).message;
  } catch {
    problem.textContent = "The server cannot be reached";
  }
  problem.hidden = false;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const token = form.token.value.trim();
  form.token.value = "";
  ask("POST", { Authorization: `Bearer ${token}` }, "/docs/");
});
document.getElementById("out").addEventListener("click", () => ask("DELETE", { "X-Ops-CSRF": "1" }, "/"));
