import { type ChildProcess, fork } from 'node:child_process'
import type { Order } from './child.js'

export interface Scope { teardown: (fn: () => unknown) => void }

/** A peer in a process of its own. */
export interface Child {
  process: ChildProcess
  tell: <T = void>(order: Partial<Order> & Pick<Order, 'what'>) => Promise<T>
  /** Resolves when a run that hangs has begun, with the epoch milliseconds. */
  began: () => Promise<number>
}

export async function open (scope: Scope, order: Omit<Order, 'what'>): Promise<Child> {
  const child = fork(new URL('child.ts', import.meta.url), { execArgv: ['--import', 'tsx', '--expose-gc'] })
  scope.teardown(() => child.kill('SIGKILL'))
  const answer = async <T>(of: string): Promise<T> => await new Promise((resolve, reject) => {
    const listen = (message: Record<string, unknown>): void => {
      if (message.error !== undefined) reject(new Error(message.error as string))
      else if (of in message || (of === 'result' && !('began' in message))) resolve(message[of] as T)
      else return
      child.off('message', listen)
    }
    child.on('message', listen)
  })
  const tell: Child['tell'] = async order => {
    child.send(order)
    return await answer('result')
  }
  await tell({ ...order, what: 'open' })
  return { process: child, tell, began: async () => await answer('began') }
}

export const rest = async (ms: number): Promise<void> => { await new Promise(resolve => setTimeout(resolve, ms)) }

export function quantile (numbers: number[], share: number): number {
  return [...numbers].sort((a, b) => a - b)[Math.floor((numbers.length - 1) * share)]!
}

export const median = (numbers: number[]): number => quantile(numbers, 0.5)

/** A table in Markdown. */
export function table (title: string, head: string[], rows: Array<Array<string | number>>): string {
  return [`\n### ${title}\n`, head, head.map(() => '---'), ...rows].map(row => typeof row === 'string' ? row : `| ${row.join(' | ')} |`).join('\n')
}
