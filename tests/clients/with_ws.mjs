// ws, the Node library: connections through the gateway, over HTTP/1.1.

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { ca, holds, key, load, place, runCases, same, soon, test } from './harness.mjs'

const WebSocket = load('ws')
const BASES = [place('http'), place('https')].map((base) => base.replace('http', 'ws'))

function testAll(name, run) {
  for (const base of BASES) test(`${name} (${base.split(':')[0]})`, () => run(base))
}

/** A connection, not open yet. */
function connect(url, options = {}, protocols = []) {
  const socket = new WebSocket(url, protocols, { ca, headers: { 'x-case': options.case ?? key() }, ...options })
  socket.on('error', () => {})
  return socket
}

async function open(...args) {
  const socket = connect(...args)
  await soon(once(socket, 'open'), 'the opening')
  return socket
}

/** What comes back for a message. */
async function asked(socket, message) {
  socket.send(message)
  const [data, binary] = await soon(once(socket, 'message'), 'an answer')
  return binary ? data : data.toString()
}

async function closed(socket) {
  const [code, reason] = await soon(once(socket, 'close'), 'the end')
  return [code, reason.toString()]
}

/** The response to a handshake that is not accepted. */
async function refused(url, options) {
  const [request, response] = await soon(once(connect(url, options), 'unexpected-response'), 'a refusal')
  let body = ''
  for await (const piece of response) body += piece
  request.destroy()
  return { status: response.statusCode, headers: response.headers, body }
}

async function atUpstream(base, name) {
  const socket = connect(`${base}/ended-${name}`)
  return (await soon(once(socket, 'message'), 'the end at the upstream'))[0].toString()
}

testAll('is echoed', async (base) => {
  const socket = await open(`${base}/echo`)
  for (const text of ['text', '', 'Ümläut ✓']) same(await asked(socket, text), text)
  same(await asked(socket, Buffer.from([0, 1, 255])), Buffer.from([0, 1, 255]))
  socket.ping('are you there')
  same((await soon(once(socket, 'pong'), 'a pong'))[0].toString(), 'are you there')
  same(socket.extensions, 'permessage-deflate', 'extensions')
  socket.close(1000)
  same((await closed(socket))[0], 1000)
})

testAll('sends and takes 8 MiB', async (base) => {
  for (const perMessageDeflate of [false, true]) {
    const socket = await open(`${base}/echo`, { perMessageDeflate, maxPayload: 16 << 20 })
    const message = randomBytes(8 << 20)
    holds(message.equals(await asked(socket, message)), 'another message came back')
    socket.send(message.subarray(0, 1 << 20), { fin: false })
    socket.send(message.subarray(1 << 20), { fin: true })
    const [joined] = await soon(once(socket, 'message'), 'an answer')
    holds(message.equals(joined), 'another message came back, of one in pieces')
    socket.terminate()
  }
})

testAll('takes 10000 messages in their order, some of them late', async (base) => {
  const socket = await open(`${base}/many`)
  let count = 0
  const all = new Promise((resolve, reject) => {
    socket.on('message', (data) => {
      if (Number(data.toString().split(' ')[0]) !== count++) reject(new Error(`message ${count} is another one`))
      // Back-pressure: for a while nothing is read.
      if (count % 1000 === 0) {
        socket.pause()
        setTimeout(() => socket.resume(), 10)
      }
      if (count === 10_000) resolve()
    })
  })
  socket.send('10000')
  await soon(all, '10000 messages')
  socket.terminate()
})

testAll('agrees on a protocol', async (base) => {
  const socket = await open(`${base}/echo`, {}, ['other', 'chat.v2'])
  same(socket.protocol, 'chat.v2')
  socket.terminate()
})

testAll('hears how the upstream closes', async (base) => {
  same(await closed(connect(`${base}/bye`)), [4001, 'as you wish'])
})

testAll('closes and breaks off, and the upstream hears it', async (base) => {
  const [one, two] = [key(), key()]
  const socket = await open(`${base}/echo`, { case: one })
  socket.close(4002, 'enough')
  same(await closed(socket), [4002, 'enough'])
  same(await atUpstream(base, one), '4002')
  const broken = await open(`${base}/echo`, { case: two })
  broken.terminate()
  same(await atUpstream(base, two), '1006')
})

testAll('is refused over a limit', async (base) => {
  const mine = { case: key() }
  const socket = await open(`${base}/few/echo`, mine)
  same(await asked(socket, 'once'), 'once')
  socket.terminate()
  const { status, headers, body } = await refused(`${base}/few/echo`, mine)
  same([status, JSON.parse(body).limit, headers['ratelimit-policy']], [429, 'few', '"few";q=1;w=3600'])
  holds(Number(headers['retry-after']) > 3500, `Retry-After: ${headers['retry-after']}`)
})

testAll('holds its slot', async (base) => {
  const mine = { case: key() }
  const socket = await open(`${base}/open/echo`, mine)
  same((await refused(`${base}/open/echo`, mine)).status, 429)
  socket.terminate()
})

testAll('is answered by the upstream instead', async (base) => {
  const { status, body } = await refused(`${base}/forbidden`)
  same([status, body], [403, 'not you\n'])
})

testAll('is closed for what is too large, too much or too quiet', async (base) => {
  const large = await open(`${base}/small/echo`, { perMessageDeflate: false })
  same((await asked(large, 'x'.repeat(1024))).length, 1024)
  large.send('x'.repeat(1025))
  same((await closed(large))[0], 1009)
  const much = await open(`${base}/talk/echo`)
  for (const text of ['1', '2', '3']) same(await asked(much, text), text)
  much.send('one too many')
  same((await closed(much))[0], 1008)
  same((await closed(await open(`${base}/idle/echo`)))[0], 1001)
})

await runCases()
