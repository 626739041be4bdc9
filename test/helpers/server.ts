import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { HourlySyncOptions, RunOnceResult, RunRecord, Status } from '../../lib/types.js'

interface Scope { teardown: (fn: () => unknown) => void }

/** What the sync of a forked server does. */
export type Work = { kind: 'rest', ms: number } | { kind: 'kill' | 'statement' } | { kind: 'steps', url: string, steps: number } | { kind: 'fetch' | 'deaf' | 'never' | 'write', url: string }

/** An app of a forked server. */
export interface Boot {
  url: string
  applicationName?: string
  /** Whether the plugin is registered before or after @fastify/postgres. */
  order?: 'before' | 'after'
  work: Work
  /** Of the plugin; what can go over to another process. */
  options?: Omit<Partial<HourlySyncOptions>, 'sync' | 'isTransient' | 'onError'>
}

interface Trigger { started: boolean, reason?: string, message?: string, runId?: string }

/** What a forked server can be asked. Dates come over as texts. */
interface Calls {
  /** Builds an app and listens. Gives its address. */
  boot: (boot: Boot) => string
  trigger: () => Trigger
  doubleClick: () => [Trigger, Trigger]
  start: () => undefined
  isSyncing: () => boolean
  status: () => Status
  runs: () => RunRecord[]
  runOnce: (options?: { force?: boolean }) => RunOnceResult
  /** Closes the app; the process goes on and can boot another. */
  stop: () => undefined
  /** Closes the app, and holds the process no longer. Gives how long it took, milliseconds. */
  close: () => number
}

export interface Exit { code: number | null, signal: string | null, stderr: string }

interface LogLine { level: number, msg: string, [field: string]: unknown }

export interface Server {
  pid: number
  call: <C extends keyof Calls>(call: C, ...argument: Parameters<Calls[C]>) => Promise<ReturnType<Calls[C]>>
  /** What it has logged so far. */
  log: LogLine[]
  kill: (signal: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT') => void
  /** When it has ended, for whatever reason. */
  exited: Promise<Exit>
  /** Closes its app, and waits for the process to end by itself. */
  end: () => Promise<Exit>
}

/**
 * Runs a fixture as it would run anywhere: without what the test runner puts into the environment (`env` sees to it, as the runner adds it to any
 * child), and without what switches the plugin on or off. Its process is gone with the test.
 */
export function launch (t: Scope, name: string, env: NodeJS.ProcessEnv = {}): { child: ChildProcess, exited: Promise<Exit> } {
  const file = fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url))
  const unset = ['NODE_OPTIONS', 'NODE_V8_COVERAGE', 'AUTO_SYNC', 'FASTIFY_HOURLY_SYNC_LOOP'].flatMap(variable => ['-u', variable])
  const child = spawn('env', [...unset, process.execPath, file], { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
  let stderr = ''
  child.stdout!.resume() // or its end never comes
  child.stderr!.on('data', chunk => { stderr += String(chunk) })
  const exited = once(child, 'close').then(([code, signal]) => ({ code, signal, stderr }) as Exit)
  t.teardown(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await exited
  })
  return { child, exited }
}

/** A process that runs the built package; gone with the test. `TZ` and the like go into `env`. */
export async function forkServer (t: Scope, env: NodeJS.ProcessEnv = {}): Promise<Server> {
  const { child, exited } = launch(t, 'server.js', env)
  const log: LogLine[] = []
  createInterface(child.stdout!).on('line', line => log.push(JSON.parse(line)))

  const waiting = new Map<number, { resolve: (value: any) => void, reject: (error: Error) => void }>()
  let calls = 0
  child.on('message', (message: { id?: number, value?: unknown, error?: { message: string } }) => {
    const asked = waiting.get(message.id ?? -1)
    waiting.delete(message.id ?? -1)
    if (message.error !== undefined) asked?.reject(Object.assign(new Error(message.error.message), message.error))
    else asked?.resolve(message.value)
  })
  exited.then(({ code, signal, stderr }) => {
    for (const { reject } of waiting.values()) reject(new Error(`the server has ended (${code ?? signal}): ${stderr}`))
  })
  const call: Server['call'] = async (call, argument?: unknown) => await new Promise((resolve, reject) => {
    const id = calls++
    waiting.set(id, { resolve, reject })
    child.send({ id, call, argument }, error => { if (error !== null) reject(error) })
  })
  await once(child, 'message') // it is ready
  return {
    pid: child.pid!,
    log,
    call,
    exited,
    kill: signal => { child.kill(signal) },
    async end () {
      await call('close')
      return await exited
    }
  }
}

/** A forked server with an app. */
export async function startServer (t: Scope, boot: Boot, env: NodeJS.ProcessEnv = {}): Promise<Server & { address: string }> {
  const server = await forkServer(t, env)
  return { ...server, address: await server.call('boot', boot) }
}

/** How a server ends that nothing was wrong with. */
export const clean: Exit = { code: 0, signal: null, stderr: '' }

/** An external API that answers when the test says so. */
export interface Api {
  url: string
  /** Waits for the next request that has not been seen; gives what answers it. */
  request: () => Promise<{ answer: () => void, aborted: Promise<unknown> }>
}

export async function startApi (t: Scope): Promise<Api> {
  const arrived: ServerResponse[] = []
  const wanted: Array<(response: ServerResponse) => void> = []
  const server = createServer((_request, response) => {
    const first = wanted.shift()
    if (first === undefined) arrived.push(response)
    else first(response)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    async request () {
      const response = arrived.shift() ?? await new Promise<ServerResponse>(resolve => wanted.push(resolve))
      return { answer: () => { response.end('ok') }, aborted: once(response, 'close') }
    }
  }
}
