import t from 'tap'
import { duration } from '../lib/duration.js'

const good: Array<[unknown, number]> = [
  [0, 0],
  [1, 1],
  [90_000, 90_000],
  [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  ['0s', 0],
  ['0ms', 0],
  ['250ms', 250],
  ['90s', 90_000],
  ['10m', 600_000],
  ['10 m', 600_000],
  ['10min', 600_000],
  ['1h', 3_600_000],
  ['1.5h', 5_400_000],
  ['.5h', 1_800_000],
  ['2hours', 7_200_000],
  ['90d', 7_776_000_000],
  ['1w', 604_800_000],
  ['1y', 31_557_600_000],
  ['0.0004s', 0],
  ['1.0006s', 1_001]
]

for (const [value, ms] of good) t.equal(duration(value), ms, `${JSON.stringify(value)} is ${ms} ms`)

const bad: unknown[] = [
  -1, 0.5, NaN, Infinity, -Infinity, 2 ** 53,
  '', ' ', 'h', '10', '1000', '-1s', '- 1s', '+1s', '1M', '1H', '1Min', '90S', '1h30m', '1h 30m', '1 h 30 m', '1.h', '1..5h', '1e3s', '0x10s',
  '1s ', ' 1s', '1  s', '1s\n', '1\ts', '1mo', '1month', '1u', '1µs', '1ns', '١h', 'NaNs', 'Infinitys', 'undefined', '1undefined', '9e99y', `${'9'.repeat(400)}h`, '1000000y',
  undefined, null, true, false, 10n, {}, [], ['1h'], new Date(0), () => '1h', Symbol('1h'), { valueOf: () => 1 }
]

for (const value of bad) t.equal(duration(value), undefined, `${String(typeof value === 'symbol' ? 'a symbol' : typeof value === 'bigint' ? value : JSON.stringify(value) ?? value).slice(0, 40)} is no duration`)
