// What the Node scripts share: cases and their report, and where things are. The Python scripts have harness.py.

import { createHash, randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const places = JSON.parse(process.env.TOLLGATE_CLIENTS)
const cases = []

// No wait within a case is longer, whatever goes wrong; a deadline, nothing that is measured.
export const DEADLINE_MS = 20_000

/** The packages are installed outside of the tree, where `import` does not look. */
export const load = createRequire(places.installed + '/')

export const place = (name) => places[name]
export const ca = readFileSync(places.ca)
export const key = () => randomUUID()
export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex')

export function test(name, run) {
  cases.push([name, run])
}

export function same(found, expected, what = 'value') {
  const [is, should] = [JSON.stringify(found), JSON.stringify(expected)]
  if (is !== should) throw new Error(`${what}: ${is} instead of ${should}`)
}

export function holds(condition, what) {
  if (!condition) throw new Error(what)
}

/** The sum of a metric's samples that carry these labels. */
export async function metric(name, labels = {}) {
  const text = await (await fetch(place('admin') + '/metrics')).text()
  let sum = 0
  for (const line of text.split('\n')) {
    const [series, value] = [line.slice(0, line.lastIndexOf(' ')), line.slice(line.lastIndexOf(' ') + 1)]
    const has = Object.entries(labels).every(([label, wanted]) => series.includes(`${label}="${wanted}"`))
    if (series.split('{')[0] === name && has) sum += Number(value)
  }
  return sum
}

/** Fails when `promise` takes longer than the deadline. */
export function soon(promise, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not happen`)), DEADLINE_MS)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** Runs all cases. The last line says how many there were, so that a script that ends early can't pass for one that ran. */
export async function runCases() {
  for (const [name, run] of cases) {
    try {
      await soon(run(), 'the end of the case')
      console.log(`ok ${name}`)
    } catch (error) {
      const at = /\/([\w-]+\.mjs:\d+)/.exec(String(error.stack).replaceAll(/.*harness\.mjs.*/g, ''))?.[1] ?? ''
      console.log(`FAILED ${name}: ${at}: ${String(error.stack ?? error).split('\n')[0]} ${error.cause ?? ''}`)
    }
  }
  console.log(`ran ${cases.length}`)
  process.exit()
}
