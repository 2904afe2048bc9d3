/**
 * The page's parts: style, markup, script. The script asks /api/v1/status every second and streams
 * /api/v1/events with `fetch`, because an EventSource cannot carry the key; the key stays in a variable. Texts
 * reach the page through `textContent` only. Up to `mostDots` pods are drawn one by one, more as a bar.
 */
export const style = `
:root { --bg:#f6f7f5; --card:#fff; --ink:#16201c; --soft:#5b6762; --line:#dfe4e1; --busy:#0a7d55; --drain:#a35a00; --bad:#b3261e; --free:#9aa8a2; }
@media (prefers-color-scheme: dark) { :root { --bg:#101513; --card:#181f1c; --ink:#e8eeeb; --soft:#9aa8a2; --line:#2a3430; --busy:#35c48f; --drain:#f0a54a; --bad:#ff8a80; --free:#5f6d67; } }
* { box-sizing:border-box; margin:0; }
[hidden] { display:none !important; }
body { background:var(--bg); color:var(--ink); font:15px/1.5 system-ui, sans-serif; max-width:72rem; margin:0 auto; padding:1.5rem clamp(1rem,4vw,2.5rem) 3rem; }
header { display:flex; flex-wrap:wrap; align-items:center; gap:.25rem .8rem; }
h1 { font-size:1.35rem; letter-spacing:-.01em; }
h2 { font-size:.95rem; }
small, .soft { color:var(--soft); font-size:.85rem; }
#state { margin-left:auto; font-weight:600; font-size:.9rem; color:var(--soft); }
#state::before { content:""; display:inline-block; width:.6rem; height:.6rem; border-radius:50%; margin-right:.45rem; background:currentColor; }
#state[data-is=live] { color:var(--busy); } #state[data-is=bad] { color:var(--bad); }
.facts { display:flex; flex-wrap:wrap; gap:.6rem 2.6rem; margin:1.3rem 0 1.5rem; }
.facts dt { color:var(--soft); font-size:.85rem; }
.facts dd { font-size:1.7rem; line-height:1.2; font-weight:650; font-variant-numeric:tabular-nums; overflow-wrap:anywhere; }
.facts dd.name { font-size:1rem; line-height:2.05rem; }
#pools { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,15rem),1fr)); gap:.9rem; }
.pool, #log, #key { background:var(--card); border:1px solid var(--line); border-radius:.8rem; padding:1rem 1.1rem; }
.pool header { flex-wrap:nowrap; align-items:baseline; justify-content:space-between; margin-bottom:.8rem; } .pool h2 { overflow-wrap:anywhere; } .pool h2 small { font-weight:400; } .pool header > small { white-space:nowrap; font-variant-numeric:tabular-nums; }
.pool ul { list-style:none; padding:0; display:flex; flex-wrap:wrap; gap:.45rem; }
.dot { width:1.7rem; height:1.7rem; border-radius:50%; border:2px solid var(--free); font-size:.72rem; font-weight:700; display:grid; place-items:center; font-variant-numeric:tabular-nums; }
.dot[data-is=busy] { border-color:var(--busy); background:conic-gradient(var(--busy) calc(var(--load)*1%), transparent 0); }
.dot[data-is=busy][data-part] { background:conic-gradient(color-mix(in srgb,var(--busy) 45%,transparent) calc(var(--load)*1%), transparent 0); }
.dot[data-is=draining] { border:2px dashed var(--drain); color:var(--drain); }
.dot[data-is=draining][data-load] { background:color-mix(in srgb,var(--drain) 40%,transparent); }
.bar { height:.8rem; border-radius:.4rem; border:1px solid var(--free); background:linear-gradient(90deg,var(--busy) calc(var(--load)*1%),transparent 0); }
.legend { display:flex; flex-wrap:wrap; gap:.3rem 1.2rem; margin:.8rem .2rem 1.4rem; align-items:center; }
.legend span { display:flex; gap:.45rem; align-items:center; } .legend .dot { width:.9rem; height:.9rem; --load:100; }
#log header { justify-content:space-between; margin-bottom:.5rem; }
#log ol { list-style:none; padding:0; font-size:.9rem; }
#log li { display:grid; grid-template-columns:4.4rem 7.5rem minmax(0,1fr); gap:.8rem; padding:.2rem 0; border-top:1px solid var(--line); }
#log time { color:var(--soft); font-variant-numeric:tabular-nums; }
#log span { overflow-wrap:anywhere; } #log small { margin-left:.4rem; } #log b { font-weight:600; color:var(--soft); }
#log [data-tone=good] b { color:var(--busy); } #log [data-tone=warn] b { color:var(--drain); } #log [data-tone=bad] b { color:var(--bad); }
button, input { font:inherit; color:inherit; background:transparent; border:1px solid var(--free); border-radius:.5rem; padding:.3rem .8rem; }
button { cursor:pointer; } :focus-visible { outline:3px solid var(--busy); outline-offset:2px; }
#key { display:flex; flex-wrap:wrap; gap:.6rem; align-items:center; margin:1.3rem 0; } #key input { flex:1 1 14rem; } #key p { flex-basis:100%; color:var(--bad); }
main[data-stale] { opacity:.45; }
@media (max-width:34rem) { #log li { grid-template-columns:3.8rem 4.8rem minmax(0,1fr); gap:.5rem; font-size:.8rem; } #log { padding:.9rem; } #log small { display:block; margin:0; font-size:inherit; } .facts { gap:.6rem 1.6rem; } }
`;

export const body = `
<header><h1>Smart Router</h1><small id="version"></small><span id="state" role="status">connecting</span></header>
<form id="key" hidden><label for="secret">Admin key</label><input id="secret" type="password" autocomplete="off" required><button>Open</button><p id="refused" role="alert"></p></form>
<noscript><p>This page needs JavaScript. The same numbers are at /api/v1/status.</p></noscript>
<main id="main">
<dl class="facts"><div><dt>Active calls</dt><dd id="calls">–</dd></div><div><dt>Free agents</dt><dd id="free">–</dd></div><div><dt>Leader</dt><dd id="leader" class="name">–</dd></div></dl>
<section id="pools" aria-label="Pools"></section>
<div class="legend soft"><span><i class="dot"></i>free</span><span><i class="dot" data-is="busy"></i>busy</span><span><i class="dot" data-is="draining"></i>draining or not ready</span><span>a number: calls on a shared agent</span></div>
<section id="log" aria-labelledby="events"><header><h2 id="events">Latest events</h2><button id="pause" type="button" aria-pressed="false">Pause</button></header><ol id="list"></ol></section>
</main>
`;

export const script = `
'use strict';
const $ = (id) => document.getElementById(id), api = 'api/v1', mostDots = 300, mostEvents = 30;
let key = '', last = '', lastOk = 0, drawn = '', paused = false, events = [], streaming = false;

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const clock = (time) => new Date(time).toLocaleTimeString('en-GB');
const plural = (n, word) => n + ' ' + word + (n === 1 ? '' : 's');

async function ask(path, signal) {
  const response = await fetch(api + path, { headers: key ? { authorization: 'Bearer ' + key } : {}, cache: 'no-store', signal });
  if (response.status === 401 || response.status === 403) {
    if (key) $('refused').textContent = response.status === 401 ? 'The router does not accept this key.' : (await response.json()).error;
    if ($('key').hidden) { $('key').hidden = false; $('secret').focus(); }
    key = '';
    throw Object.assign(new Error('locked'), { locked: true });
  }
  if (!response.ok) throw new Error('status ' + response.status);
  return response;
}

function tell(is, text) {
  const state = $('state');
  state.dataset.is = is;
  if (state.textContent !== text) state.textContent = text;
  $('main').toggleAttribute('data-stale', is !== 'live');
}

function dot(pod, most) {
  const load = pod.calls.length, is = pod.blocked_by ? 'draining' : load > 0 ? 'busy' : 'free';
  const what = pod.blocked_by ? pod.blocked_by.replaceAll('_', ' ') : is;
  const label = pod.pod_name + ': ' + what + (load ? ', ' + plural(load, 'call') + ': ' + pod.calls.join(', ') : '');
  const element = make('li', { class: 'dot', role: 'img', title: label, 'aria-label': label, 'data-is': is, 'data-load': load || undefined, 'data-part': most > 1 ? '' : undefined }, most > 1 && load ? String(load) : '');
  element.style.setProperty('--load', Math.min(100, 100 * load / most));
  return element;
}

function drawPool(name, pool, pods) {
  const merchant = name.startsWith('merchant:'), title = merchant ? name.slice(9) : name;
  const most = pool.assigned ? pool.capacity / pool.assigned : 1;
  const numbers = pool.type === 'shared' ? pool.active_calls + ' of ' + pool.capacity + ' calls' : pool.available + ' of ' + pool.assigned + ' free';
  const bar = make('div', { class: 'bar', role: 'img', 'aria-label': numbers });
  bar.style.setProperty('--load', pool.capacity ? Math.min(100, 100 * pool.active_calls / pool.capacity) : 0);
  const inside = pods ? make('ul', {}, ...pods.map((pod) => dot(pod, most))) : bar;
  return make('section', { class: 'pool', 'aria-label': title }, make('header', {}, make('h2', {}, title, merchant ? make('small', {}, ' merchant') : ''), make('small', {}, numbers)), inside);
}

async function look() {
  const signal = AbortSignal.timeout(2500);
  const answer = await ask('/status', signal), status = await answer.json();
  const names = Object.keys(status.pools), total = names.reduce((sum, name) => sum + status.pools[name].assigned, 0);
  const listed = status.status === 'up' && total <= mostDots ? (await (await ask('/pods?limit=1000', signal)).json()).pods : undefined;
  lastOk = Date.now();
  $('key').hidden = true;
  $('version').textContent = status.version;
  if (status.status !== 'up') return tell('bad', 'the store does not answer; shown as of before');
  tell('live', status.removals_held ? 'live, but the removal brake holds ' + plural(status.removals_held, 'pod') : 'live');
  $('calls').textContent = status.active_calls;
  $('free').textContent = names.reduce((sum, name) => sum + status.pools[name].available, 0);
  $('leader').textContent = status.leader ? status.leader + (status.is_leader ? ' (this one)' : '') : 'none known here';
  const rank = (name) => (name.startsWith('merchant:') ? 2 : status.pools[name].type === 'shared' ? 1 : 0);
  names.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  // Redrawn only when it looks different, so that a tooltip stays.
  const picture = JSON.stringify([status.pools, listed && listed.map((pod) => [pod.pod_name, pod.blocked_by, pod.calls])]);
  if (picture !== drawn) $('pools').replaceChildren(...names.map((name) => drawPool(name, status.pools[name], listed && listed.filter((pod) => pod.tier === name).sort((a, b) => a.pod_name.localeCompare(b.pod_name, 'en', { numeric: true })))));
  drawn = picture;
  if (!streaming) void stream(Date.parse(answer.headers.get('date')) - 60000);
}

async function poll() {
  for (;;) {
    try { if (!document.hidden && ($('key').hidden || key)) await look(); }
    catch (error) { if (error.locked) tell('locked', 'locked'); else if (lastOk) tell('bad', 'no answer; stale since ' + clock(lastOk)); else tell('bad', 'no answer yet'); }
    await new Promise((next) => setTimeout(next, 1000));
  }
}

const tones = { call_allocated: 'good', pod_undrained: 'good', pod_draining: 'warn', call_recovered: 'warn', pod_recovered: 'warn', removals_confirmed: 'warn', no_pods: 'bad', call_lost: 'bad' };
function drawEvents() {
  if (paused) return;
  $('list').replaceChildren(...events.map(({ id, type, at, call, pod, pool, merchant, ...more }) => {
    const who = [call, pod].filter(Boolean).join(/allocated|adopted/.test(type) ? ' → ' : ' ← ');
    const words = [more.leader, pool && pool.replace('pool:', ''), merchant && 'for ' + merchant, more.reason, more.chain, more.by && 'by ' + more.by];
    return make('li', { 'data-tone': tones[type] }, make('time', { datetime: at }, clock(at)), make('b', {}, type.replace(/^(call|pod)_/, '').replaceAll('_', ' ')), make('span', {}, who + ' ', make('small', {}, words.filter(Boolean).join(', '))));
  }));
}

async function stream(since) {
  streaming = true;
  try {
    const response = await ask('/events?since=' + (last || since));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = '', chunk; !(chunk = await reader.read()).done;) {
      const blocks = (text + chunk.value).split('\\n\\n');
      text = blocks.pop();
      for (const block of blocks) {
        const data = block.split('\\n').find((line) => line.startsWith('data: '));
        if (!data) continue;
        const event = JSON.parse(data.slice(6));
        last = event.id;
        events.unshift(event);
      }
      events.length = Math.min(events.length, mostEvents);
      requestAnimationFrame(drawEvents);
    }
  } catch { /* The next look that succeeds starts it again, from the last event. */ }
  streaming = false;
}

$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').textContent = paused ? 'Go on' : 'Pause';
  $('pause').setAttribute('aria-pressed', String(paused));
  drawEvents();
});
$('key').addEventListener('submit', (event) => {
  event.preventDefault();
  key = $('secret').value.trim();
  $('refused').textContent = '';
  $('secret').value = '';
});
void poll();
`;
