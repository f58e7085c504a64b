// Lays what the program sends over what the page shows. Only sections that differ
// are exchanged, so that focus and scrolling stay where they are.
'use strict';

const silence = 15000; // three beats: see events.go
const main = document.getElementById('main');
const link = document.getElementById('link');
const say = document.getElementById('say');
let heard = Date.now();

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// exchange puts a section in the place of another.
function exchange(old, section) {
  const scrolled = [...old.querySelectorAll('.scroll')].map((s) => [s.id, s.scrollLeft, s.scrollTop]);
  const focused = old.contains(document.activeElement) && document.activeElement.id;
  old.replaceWith(section);
  for (const [id, left, top] of scrolled) {
    const s = document.getElementById(id);
    if (s) s.scrollTo(left, top);
  }
  const again = focused && document.getElementById(focused);
  if (again) again.focus({preventScroll: true});
}

function show(html) {
  const fresh = document.createElement('template');
  fresh.innerHTML = html; // made by html/template, which escapes every value
  const known = new Map([...main.querySelectorAll('section')].map((s) => [s.id, s]));
  let last = null;
  for (const section of [...fresh.content.querySelectorAll('section')]) {
    const old = known.get(section.id);
    known.delete(section.id);
    if (old && old.outerHTML === section.outerHTML) {
      last = old;
      continue;
    }
    if (old) exchange(old, section);
    else if (last) last.after(section);
    else main.prepend(section);
    last = section;
  }
  for (const gone of known.values()) gone.remove();
}

function alive() {
  heard = Date.now();
  setText(link, 'Live');
  link.className = '';
}

function cut() {
  setText(link, 'Stale: kubectl phasegate dashboard does not answer. What is shown is from ' + new Date(heard).toLocaleTimeString() + '.');
  link.className = 'trouble';
}

const stream = new EventSource('events');
stream.addEventListener('state', (event) => {
  const state = JSON.parse(event.data);
  alive();
  show(state.html);
  setText(say, state.say);
  document.title = state.title + ' – Phasegate';
});
stream.addEventListener('beat', alive);
stream.addEventListener('error', cut); // it connects again by itself
setInterval(() => { if (Date.now() - heard > silence) cut(); }, 1000);
