import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/** Ends a PostgreSQL whose own process was killed before it could, and removes the folder. */
export async function removeLeftovers (folder: string): Promise<void> {
  const pidFile = join(folder, 'data', 'postmaster.pid') // gone when the server ended in order
  if (existsSync(pidFile)) {
    const pid = Number(readFileSync(pidFile, 'utf8').split('\n')[0])
    let alive = signal(pid, 'SIGQUIT')
    for (let wait = 0; alive && wait < 30; wait++) {
      await delay(100)
      alive = signal(pid, 0)
    }
  }
  rmSync(folder, { recursive: true, force: true })
}

function signal (pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    return false
  }
}
