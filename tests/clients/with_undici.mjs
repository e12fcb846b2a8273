// undici, which is Node's fetch: HTTP/1.1 and HTTP/2, keep-alive and pipelining.

import { Readable } from 'node:stream'
import { DEADLINE_MS, ca, holds, key, load, metric, place, runCases, same, sha256, soon, test } from './harness.mjs'

const { Agent, Client, EventSource, RetryAgent, fetch, request } = load('undici')
const TIMES = { headersTimeout: DEADLINE_MS, bodyTimeout: DEADLINE_MS }
const [HTTP, HTTPS] = [place('http'), place('https')]

// Name, base, options of the dispatcher, what the upstream reads in Via.
const MODES = [
  ['h1', HTTP, {}, '1.1 tollgate'],
  ['h1 over TLS', HTTPS, { connect: { ca } }, '1.1 tollgate'],
  ['h2', HTTPS, { connect: { ca }, allowH2: true }, '2 tollgate'],
]

/** A case once for each mode, with a dispatcher of its own that has as many connections as it likes. */
function testAll(name, run, modes = MODES) {
  for (const mode of modes) {
    test(`${name} (${mode[0]})`, async () => {
      const agent = new Agent({ ...TIMES, ...mode[2] })
      try {
        await run(mode[1], agent, mode)
      } finally {
        await agent.destroy()
      }
    })
  }
}

const connections = (base) => metric('tollgate_connections_total', { listener: base === HTTPS ? 'secure' : 'clear' })
const get = (base, path, dispatcher, more = {}) => request(base + path, { dispatcher, ...more })

async function statusOf(...request) {
  const response = await get(...request)
  await response.body.dump()
  return response.statusCode
}

function noise(size) {
  const bytes = Buffer.alloc(size)
  for (let at = 0, x = 1; at < size; at += 4) {
    x = (Math.imul(x, 1664525) + 1013904223) | 0
    bytes.writeInt32LE(x, at)
  }
  return bytes
}

for (const [name, base, options, via] of MODES) {
  test(`is understood and keeps its connection (${name})`, async () => {
    const before = await connections(base)
    const client = new Client(base, { ...TIMES, ...options })
    for (let number = 0; number < 30; number++) {
      const response = await client.request({ method: 'GET', path: `/echo?number=${number}`, headers: { 'x-custom': 'yes' } })
      const seen = await response.body.json()
      same([seen.path, seen.headers['x-custom'], seen.headers.via], [`/echo?number=${number}`, 'yes', via])
    }
    same((await connections(base)) - before, 1, 'connections')
    await client.close()
  })
}

test('does not believe a certificate of an authority it does not know', async () => {
  const agent = new Agent(TIMES)
  const error = await get(HTTPS, '/echo', agent).then(() => ({ code: 'it did' }), (error) => error)
  holds(/UNABLE_TO_(VERIFY|GET)|SELF_SIGNED/.test(error.code), error.code)
  await agent.destroy()
})

for (const [name, base, options] of MODES.slice(0, 2)) {
  test(`sends ten requests ahead on one connection (${name})`, async () => {
    const before = await connections(base)
    const client = new Client(base, { ...TIMES, ...options, pipelining: 10 })
    const answers = await Promise.all(
      Array.from({ length: 100 }, async (_, number) => {
        const response = await client.request({ method: 'GET', path: `/echo?number=${number}` })
        return (await response.body.json()).path
      })
    )
    same(answers, Array.from({ length: 100 }, (_, number) => `/echo?number=${number}`))
    same((await connections(base)) - before, 1, 'connections')
    await client.close()
  })
}

testAll('sends and takes 16 MiB', async (base, agent) => {
  const body = noise(16 << 20)
  const seen = await (await get(base, '/echo', agent, { method: 'POST', body })).body.json()
  same([seen.bytes, seen.sha256], [body.length, sha256(body)])
  const pieces = Readable.from(Array.from({ length: 256 }, (_, at) => body.subarray(at << 16, (at + 1) << 16)))
  const piped = await (await get(base, '/echo', agent, { method: 'POST', body: pieces })).body.json()
  same([piped.sha256, piped.headers['transfer-encoding']], [sha256(body), 'chunked'])
  for (const more of ['', '&chunked=1']) {
    const response = await get(base, `/download?bytes=${16 << 20}${more}`, agent)
    same(sha256(Buffer.from(await response.body.arrayBuffer())), response.headers['x-sha256'])
  }
})

testAll('asks for a head alone', async (base, agent) => {
  const { statusCode, headers, body } = await get(base, '/download?bytes=100000', agent, { method: 'HEAD' })
  same([statusCode, headers['content-length'], (await body.arrayBuffer()).byteLength], [200, '100000', 0])
})

testAll('takes gzip as the upstream made it', async (base, agent) => {
  const packed = await get(base, '/gzip', agent, { headers: { 'accept-encoding': 'gzip' } })
  same([packed.headers['content-encoding'], sha256(Buffer.from(await packed.body.arrayBuffer()))], ['gzip', packed.headers['x-packed']])
  const plain = await (await get(base, '/gzip', agent)).body.text()
  const unpacked = await (await fetch(`${base}/gzip`, { dispatcher: agent, headers: { 'accept-encoding': 'gzip' } })).text()
  holds(plain.length > 10_000 && unpacked === plain, `${unpacked.length} characters instead of ${plain.length}`)
})

testAll('sees each event when it is sent', async (base, agent) => {
  const meeting = key()
  const source = new EventSource(`${base}/events?key=${meeting}`, { dispatcher: agent })
  const next = (name) => soon(new Promise((resolve) => source.addEventListener(name, resolve, { once: true })), `event ${name}`)
  const [first, last] = [next('message'), next('last')]
  same([(await first).data, (await first).lastEventId], ['one', '1'])
  await (await get(HTTP, `/happen?key=${meeting}`, undefined)).body.dump()
  same([(await last).data, (await last).lastEventId], ['two', '2'])
  source.close()
})

testAll('is told of its limit and refused', async (base, agent) => {
  const headers = { 'x-case': key() }
  for (const left of ['1', '0']) {
    const response = await get(base, '/few/echo', agent, { headers })
    await response.body.dump()
    same([response.statusCode, response.headers['x-ratelimit-remaining']], [200, left])
  }
  const response = await fetch(`${base}/few/echo`, { dispatcher: agent, headers })
  const wait = Number(response.headers.get('retry-after'))
  holds(1700 < wait && wait <= 1800, `Retry-After: ${wait}`)
  same([response.status, response.headers.get('ratelimit')], [429, `"few";r=0;t=${wait}`])
  same((await response.json()).error, 'rate_limit_exceeded')
})

testAll('comes back by itself when it may', async (base, agent) => {
  const patient = new RetryAgent(agent, { maxRetries: 3, minTimeout: 1, maxTimeout: 5000, timeoutFactor: 1 })
  const refusals = () => metric('tollgate_limited_total', { limit: 'soon' })
  let refused = 0
  // On a machine that is too slow the second may not be refused: then once more, with another counter.
  for (let round = 0; round < 5 && refused === 0; round++) {
    const [headers, before] = [{ 'x-case': key() }, await refusals()]
    for (let number = 0; number < 2; number++) {
      const response = await get(base, '/soon/echo', patient, { headers })
      same([response.statusCode, (await response.body.json()).path], [200, '/soon/echo'])
    }
    refused = (await refusals()) - before
  }
  // And no second refusal: it has waited for as long as it was told, where its own backoff begins with 1 ms.
  same(refused, 1, 'refusals')
})

// Over HTTP/2 undici sometimes loses an answer that ends before its upload does: it takes the RST_STREAM behind it for a failure.
const refusal = async (base, agent) => {
  const pieces = () => Readable.from(Array.from({ length: 8 }, () => Buffer.alloc(65536)))
  for (const body of [Buffer.alloc(512 << 10), pieces()]) {
    const response = await get(base, '/small/echo', agent, { method: 'POST', body })
    same([response.statusCode, (await response.body.json()).error], [413, 'payload_too_large'])
  }
  same(await statusOf(base, '/echo', agent), 200, 'the next request')
}
// Not in HTTP/2: undici 6 fails a request whose answer ends before its upload does, whether or not the stream is reset.
testAll('reads the refusal of a body that is too large', refusal, MODES.slice(0, 2))

testAll('takes trailers', async (base, agent, mode) => {
  const response = await get(base, '/trailers', agent, { headers: { te: 'trailers' } })
  same(await response.body.text(), 'body')
  // undici has no trailers in HTTP/2 yet; the body must be whole nevertheless.
  if (!mode[2].allowH2) same(response.trailers['x-digest'], sha256('body'))
})

// In HTTP/2 over as many connections as in HTTP/1.1: undici 6 mixes up streams that share one and end out of order.
testAll('asks for twenty at once', async (base, agent) => {
  const meeting = key()
  const asked = Array.from({ length: 20 }, async () => {
    return statusOf(base, `/barrier?key=${meeting}&together=20`, agent)
  })
  same(await Promise.all(asked), Array(20).fill(200))
})

// Not in HTTP/2, where data that comes for what it has given up fails an assertion of undici 6.
const leave = async (base, agent) => {
  const [meeting, control] = [key(), new AbortController()]
  const response = await fetch(`${base}/endless?key=${meeting}`, { dispatcher: agent, signal: control.signal })
  await response.body.getReader().read()
  control.abort()
  same(await statusOf(base, `/happened?key=${meeting}`, agent), 200, 'whether the upstream has seen it')
}
testAll('leaves within a download', leave, MODES.slice(0, 2))

await runCases()
