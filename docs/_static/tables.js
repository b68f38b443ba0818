// A field above each table searches its rows; the heads sort. Without this script the tables are whole.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.searchable")) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    const text = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "Search these " + rows.length + " rows";
    field.setAttribute("aria-label", field.placeholder);
    const told = document.createElement("span");
    told.setAttribute("role", "status");
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        row.hidden = !words.every((word) => text.get(row).includes(word));
        row.style.display = row.hidden ? "none" : "";
        shown += !row.hidden;
      }
      told.textContent = words.length ? " " + shown + " found" : "";
    });
    table.before(field, told);
    Array.from(table.tHead.rows[0].cells).forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => row.cells[place].textContent;
        const sorted = rows.slice().sort((a, b) => value(a).localeCompare(value(b), "en", { numeric: true }));
        body.append(...(down ? sorted.reverse() : sorted));
      });
    });
  }
  // A link to a claim opens its evidence.
  const unfold = () => {
    const chosen = location.hash && document.getElementById(location.hash.slice(1));
    const folded = chosen && chosen.closest("tr") && chosen.closest("tr").querySelector("details");
    if (folded) folded.open = true;
  };
  unfold();
  window.addEventListener("hashchange", unfold);
});
