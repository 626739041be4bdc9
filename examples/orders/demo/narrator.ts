export interface LogLine {
  level: number
  time: number
  msg: string
  pid?: number
  sync?: string
  run?: string
  slot?: string
  trigger?: string
  since?: string | null
  /** `host:pid` of the process that holds the lock, where it is known yet. */
  holder?: string
  reason?: string
  duration?: number
  stats?: { orders?: number }
  err?: { message?: string }
}

export interface Narrator {
  /** What a log line of a server means, in plain words; `undefined` when it tells nothing new. */
  tell: (name: string, line: LogLine) => string | undefined
  /** Which server did this run. */
  whoRan: (run: string) => string | undefined
}

/** A line as pino writes it, or `undefined` for any other text. */
export function logLineIn (text: string): LogLine | undefined {
  try {
    const line = JSON.parse(text) as Partial<LogLine> | null
    return typeof line?.level === 'number' && typeof line.msg === 'string' && typeof line.time === 'number'
      ? line as LogLine
      : undefined
  } catch {
    return undefined
  }
}

/** The time of day, as the terminal's owner reads it. */
export function timeOfDay (at: string | number): string {
  return new Date(at).toTimeString().slice(0, 8)
}

/** Warnings and worse are told whatever they are about. */
const warn = 40

/** Everything that the demo knows about the wording of log messages. */
export function openNarrator (): Narrator {
  const runs = new Map<string, string>()
  const processes = new Map<number, string>()

  function holderOf (name: string, { holder = '' }: LogLine): string {
    const found = processes.get(Number(holder.split(':').at(-1))) ?? 'the other one'
    return found === name ? 'its own last run still' : found
  }

  function sentence (name: string, line: LogLine): string | undefined {
    const { msg, run = '', slot, trigger = 'unknown', since = null, reason } = line
    const ofSlot = slot === undefined ? 'this slot' : `slot ${timeOfDay(slot)}`
    const why = line.err?.message === undefined ? '' : ` (${line.err.message})`

    if (line.sync !== undefined) {
      if (/\bstarted\b/.test(msg)) {
        runs.set(run, name)
        return `RUNS ${ofSlot}, trigger ${trigger}: it holds the lock`
      }
      if (/^fetching\b/.test(msg)) return `  asks for the orders changed ${since === null ? 'at any time: it is the first run' : `since ${timeOfDay(since)}`}`
      if (/\bsucceeded\b/.test(msg)) {
        const took = line.duration === undefined ? '' : ` in ${(line.duration / 1000).toFixed(1)} s`
        return `  done: ${line.stats?.orders ?? 'its'} orders saved${took}`
      }
      if (/\b(failed|timed.out|interrupted|lock.lost)\b/.test(msg)) return `  ${msg}${why}; the next run asks for the same window again`
      if (/\bnot due\b/.test(msg)) {
        return `skips ${ofSlot}: ${reason === undefined || reason === 'served' ? 'it is served already' : `it is not due (${reason})`}`
      }
      if (/\brunning elsewhere\b/.test(msg)) return `skips ${ofSlot}: ${holderOf(name, line)} holds the lock`
    }
    return line.level >= warn ? `says: ${msg}${why}` : undefined
  }

  return {
    tell: (name, line) => {
      if (line.pid !== undefined) processes.set(line.pid, name)
      const told = sentence(name, line)
      return told === undefined ? undefined : `${timeOfDay(line.time)}  ${name}  ${told}`
    },
    whoRan: run => runs.get(run)
  }
}
