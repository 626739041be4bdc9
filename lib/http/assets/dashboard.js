/* global addEventListener, DOMParser, EventSource, location */
/* Keeps the page of a sync live: shows times in the zone of who looks, starts a run, and fetches the page's own sections again when something happens. */
(() => {
  'use strict'

  const byId = id => document.getElementById(id)
  const live = byId('live')
  const answer = byId('answer')
  const ahead = Date.now() - new Date(document.body.dataset.now) // the viewer's clock may be wrong
  const now = () => new Date(Date.now() - ahead)
  let zone = 'local'
  try { zone = localStorage.getItem('hourly-sync-zone') === 'utc' ? 'utc' : 'local' } catch {} // it may be forbidden

  const asked = new Map() // style and zone -> format
  function format (style) {
    const key = `${style} ${zone}`
    if (!asked.has(key)) {
      const options = {
        full: { year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' },
        short: { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' },
        clock: { hour: '2-digit', minute: '2-digit', second: '2-digit' },
        hour: { weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' },
        date: { month: 'short', day: 'numeric' },
        day: { weekday: 'short', day: 'numeric', month: 'short' }
      }[style]
      asked.set(key, new Intl.DateTimeFormat('en-GB', { ...options, hourCycle: 'h23', ...(zone === 'utc' && { timeZone: 'UTC' }) }))
    }
    return asked.get(key)
  }

  /** As the page itself says it. */
  function shown (at, style) {
    const text = format(style).format(at).replace(/:00$/, (end, index, whole) => (style === 'full' || style === 'clock') && whole.split(':').length === 3 ? '' : end)
    return zone === 'utc' && style !== 'day' && style !== 'date' ? `${text} UTC` : text
  }

  function localise (root) {
    for (const element of root.querySelectorAll('time, text[data-at]')) {
      const at = new Date(element.getAttribute('datetime') ?? element.dataset.at)
      element.textContent = shown(at, element.dataset.style)
    }
  }

  /** Lays the hours out anew, as the days of the zone have them; a day may have 23 or 25. */
  function arrange (root) {
    const list = root.querySelector('.days')
    if (list === null) return
    const entries = [...list.querySelectorAll('li[data-at]')]
    const dayOf = new Intl.DateTimeFormat('en-CA', { ...(zone === 'utc' && { timeZone: 'UTC' }) })
    const hourOf = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', hourCycle: 'h23', ...(zone === 'utc' && { timeZone: 'UTC' }) })
    const days = new Map()
    for (const entry of entries) {
      const at = new Date(Number(entry.dataset.at))
      const day = dayOf.format(at)
      if (!days.has(day)) days.set(day, { at, hours: Array.from({ length: 24 }, () => []) })
      days.get(day).hours[Number(hourOf.format(at))].push(...entry.querySelectorAll('.cell'))
    }
    const today = dayOf.format(now())
    const kept = [...days].filter(([day, { hours }]) => day <= today && hours.some(cells => cells.length > 0)).slice(-7)
    list.replaceChildren(...kept.map(([, { at, hours }]) => {
      const day = document.createElement('li')
      day.className = 'day'
      const title = document.createElement('h3')
      title.textContent = format('day').format(at)
      const row = document.createElement('ol')
      row.className = 'hours'
      for (const cells of hours) {
        const place = document.createElement('li')
        place.append(...cells)
        row.append(place)
      }
      day.append(title, row)
      return day
    }))
    const cells = [...list.querySelectorAll('.cell')]
    for (const cell of cells) cell.tabIndex = -1 // one stop for the keyboard, and arrows from there
    const latest = cells.at(-1)
    if (latest !== undefined) latest.tabIndex = 0
  }

  const nearest = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }

  /** By where cells stand on the screen, whichever way they are laid out. */
  function neighbour (cell, [x, y]) {
    const from = cell.getBoundingClientRect()
    let best
    for (const other of document.querySelectorAll('#week .cell')) {
      const to = other.getBoundingClientRect()
      const along = (to.left - from.left) * x + (to.top - from.top) * y
      const aside = Math.abs((to.left - from.left) * y) + Math.abs((to.top - from.top) * x)
      if (along > 1 && aside < 3 && (best === undefined || along < best.along)) best = { other, along }
    }
    return best?.other
  }

  document.addEventListener('keydown', event => {
    const cell = event.target.closest?.('#week .cell')
    const all = [...document.querySelectorAll('#week .cell')]
    const next = cell == null ? undefined : event.key === 'Home' ? all[0] : event.key === 'End' ? all.at(-1) : nearest[event.key] && neighbour(cell, nearest[event.key])
    if (next === undefined) return
    event.preventDefault()
    cell.tabIndex = -1
    next.tabIndex = 0
    next.focus()
  })

  function detail (event) {
    const cell = event.target.closest?.('#week .cell')
    const line = byId('detail')
    if (cell == null || line === null) return
    const text = cell.querySelector('.sr').cloneNode(true)
    const at = text.querySelector('time')
    if (zone === 'local' && at !== null) at.after(` (${at.title || new Date(at.dateTime).toISOString().slice(0, 16).replace('T', ' ')} UTC)`)
    line.replaceChildren(...text.childNodes)
    line.classList.add('told')
  }
  document.addEventListener('focusin', detail)
  document.addEventListener('mouseover', detail)

  const sources = new Map([...document.querySelectorAll('[data-live]')].map(element => [element.dataset.live, element.innerHTML]))

  /** Shows a section as the server wrote it, in the zone of who looks. */
  function dress (element) {
    arrange(element)
    localise(element)
    const line = element.querySelector('#detail')
    if (line !== null) {
      line.hidden = false
      if (line.textContent === '') line.textContent = 'Point at an hour, or reach it with the arrow keys, to read what happened.'
    }
  }

  function undress (element) {
    const template = document.createElement('template')
    template.innerHTML = sources.get(element.dataset.live)
    put(element, template.content)
  }

  function put (element, content) {
    const focused = element.contains(document.activeElement) ? document.activeElement : null
    const time = focused?.querySelector('time')?.dateTime
    const href = focused?.getAttribute('href')
    const read = element.querySelector('#detail.told')
    element.replaceChildren(...content.childNodes)
    if (read !== null) element.querySelector('#detail')?.replaceWith(read)
    dress(element)
    if (focused === null) return
    const again = [...element.querySelectorAll('a, [tabindex]')].find(other => time !== undefined ? other.querySelector('time')?.dateTime === time : other.getAttribute('href') === href)
    if (again === undefined) return
    if (again.matches('.cell')) {
      for (const cell of element.querySelectorAll('.cell[tabindex="0"]')) cell.tabIndex = -1
      again.tabIndex = 0
    }
    again.focus({ preventScroll: true })
  }

  let fetching
  let wanted = false

  /** Fetches this very page, and takes over those of its sections that have changed. */
  async function refresh () {
    wanted = true
    if (fetching) return await fetching
    fetching = (async () => {
      while (wanted) {
        wanted = false
        try {
          const response = await fetch(location.pathname + location.search, { headers: { accept: 'text/html' }, cache: 'no-store' })
          if (!response.ok) continue
          const other = new DOMParser().parseFromString(await response.text(), 'text/html')
          for (const element of document.querySelectorAll('[data-live]')) {
            const fresh = other.querySelector(`[data-live="${element.dataset.live}"]`)
            if (fresh === null || fresh.innerHTML === sources.get(element.dataset.live)) continue
            sources.set(element.dataset.live, fresh.innerHTML)
            put(element, document.importNode(fresh, true))
          }
        } catch {} // the next event or minute brings another
      }
    })()
    await fetching
    fetching = undefined
  }

  const words = { succeeded: 'Succeeded', failed: 'Failed', 'timed-out': 'Timed out', interrupted: 'Interrupted', 'lock-lost': 'Lost its lock', vanished: 'Vanished' }
  const whole = value => value.toLocaleString('en-US')

  function span (ms) {
    const seconds = Math.max(0, Math.round(ms / 1000))
    if (seconds < 60) return `${seconds} s`
    const minutes = Math.floor(seconds / 60)
    return minutes < 60 ? `${minutes} min ${seconds % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`
  }

  function progress ({ done, total }) {
    const bar = byId('bar')
    if (bar === null) return refresh()
    if (total) {
      bar.max = total
      bar.value = Math.min(done, total)
    } else bar.removeAttribute('value')
    byId('count').textContent = total === null ? whole(done) : `${whole(done)} of ${whole(total)}`
  }

  let awaited // id of the run that the last answer was about
  let last // run that has ended
  let poll

  function tell (run) {
    awaited = undefined
    answer.textContent = `${words[run.state]}${run.error ? `: ${run.error.message.slice(0, 120)}` : ` after ${span(run.duration)}`}.`
  }

  function listen () {
    const source = new EventSource('events')
    source.addEventListener('open', () => {
      live.textContent = 'live'
      live.className = 'live on'
      clearInterval(poll)
      poll = undefined
      refresh() // what happened in between
    })
    source.addEventListener('error', () => {
      live.textContent = source.readyState === EventSource.CLOSED ? 'not live, looks every 15 s' : 'reconnecting'
      live.className = 'live'
      poll ??= setInterval(refresh, 15_000)
    })
    source.addEventListener('started', refresh)
    source.addEventListener('progress', event => progress(JSON.parse(event.data)))
    source.addEventListener('ended', event => {
      last = JSON.parse(event.data)
      if (last.id === awaited) tell(last)
      refresh()
    })
    addEventListener('pagehide', () => source.close())
    addEventListener('pageshow', event => { if (event.persisted) location.reload() })
  }

  async function start () {
    const button = byId('sync')
    if (button.getAttribute('aria-busy') === 'true') return
    button.setAttribute('aria-busy', 'true')
    answer.textContent = 'Asking.'
    try {
      const response = await fetch('runs', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' })
      const said = await response.json().catch(() => ({}))
      if (response.status === 202) {
        awaited = said.runId
        answer.textContent = 'Started.'
        if (last?.id === awaited) tell(last) // a short one
      } else if (said.reason === 'running') {
        const { holder } = said
        awaited = holder?.runId ?? undefined
        answer.textContent = `Running already${holder?.host ? `, by ${holder.host}:${holder.pid}` : ''}${holder?.startedAt ? `, since ${shown(new Date(holder.startedAt), 'clock')}` : ''}.`
      } else answer.textContent = `Not started: ${said.message ?? said.reason ?? response.status}`
    } catch {
      answer.textContent = 'No answer from the server.'
    }
    button.removeAttribute('aria-busy')
    refresh()
  }

  byId('sync').hidden = false
  byId('sync').addEventListener('click', start)
  byId('zone').hidden = false
  live.hidden = false
  for (const choice of document.querySelectorAll('[name="zone"]')) {
    choice.checked = choice.value === zone
    choice.addEventListener('change', () => {
      zone = choice.value
      try { localStorage.setItem('hourly-sync-zone', zone) } catch {}
      localise(document)
      for (const element of document.querySelectorAll('[data-live]')) undress(element)
    })
  }
  localise(document)
  for (const element of document.querySelectorAll('[data-live]')) dress(element)
  setInterval(() => {
    for (const element of document.querySelectorAll('[data-since]')) element.textContent = span(now() - new Date(element.dataset.since))
  }, 1_000)
  setInterval(refresh, 60_000) // hours pass without an event
  if (location.hash === '#run') byId('run')?.focus()
  listen()
})()
