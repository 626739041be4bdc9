import { fork } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

export interface FamilyOptions {
  /** A line that a child wrote. */
  onLine: (name: string, line: string, stream: 'stdout' | 'stderr') => void
  /** A child ended without being asked. */
  onDeath: (name: string, how: string) => void
}

export interface Member {
  pid: number | undefined
  /** The first line, or message, for which `find` finds something. */
  first: <T>(find: (said: unknown) => T | undefined) => Promise<T>
  stop: () => Promise<void>
}

/** How long a child may take to end in order. */
const patience = 6000

/** A child leads a group of its own, so what it started goes with it. */
function killGroup (pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {} // gone at the last moment
}

/** The processes of the demo: none of them outlives it, and none of them ends unnoticed. */
export function openFamily ({ onLine, onDeath }: FamilyOptions) {
  return {
    /**
     * @param script - path relative to this file
     * @param polite - how to ask it to end: by a signal, or by closing its channel
     */
    start (name: string, script: string, { args = [], env = {}, polite = 'SIGTERM' }: {
      args?: string[]
      env?: Record<string, string>
      polite?: 'SIGTERM' | 'disconnect'
    } = {}): Member {
      const child = fork(fileURLToPath(new URL(script, import.meta.url)), args, {
        env: { ...process.env, ...env },
        stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
        detached: true // a process group of its own: Ctrl-C in a terminal goes to us alone, and we end the rest in order
      })
      const listeners = new Set<(said: unknown) => void>()
      const hear = (said: unknown): void => { for (const listener of listeners) listener(said) }
      let stopping = false

      child.on('message', hear)
      for (const stream of ['stdout', 'stderr'] as const) {
        createInterface({ input: child[stream] as NodeJS.ReadableStream }).on('line', line => {
          hear(line)
          onLine(name, line, stream)
        })
      }
      const ended = new Promise<string>(resolve => {
        child.once('error', error => resolve(error.message))
        child.once('exit', (code, signal) => resolve(signal === null ? `exit code ${code}` : signal))
      })
      ended.then(how => { if (!stopping) onDeath(name, how) }, () => {})

      return {
        pid: child.pid,
        first: async find => await new Promise((resolve, reject) => {
          const listener = (said: unknown): void => {
            const found = find(said)
            if (found === undefined) return
            listeners.delete(listener)
            resolve(found)
          }
          listeners.add(listener)
          ended.then(how => reject(new Error(`${name} ended (${how})`)), () => {})
        }),
        stop: async () => {
          stopping = true
          if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return
          if (polite === 'SIGTERM') child.kill('SIGTERM')
          else if (child.connected) child.disconnect()
          const force = setTimeout(killGroup, patience, child.pid)
          await ended
          clearTimeout(force)
        }
      }
    }
  }
}
