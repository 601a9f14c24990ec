// A redlock client in its own process, which takes one JSON request per line: interop/README.md.
'use strict'

const readline = require('node:readline')
const Redis = require('ioredis')
const Redlock = require('redlock')
const { version } = require('redlock/package.json')

const clients = process.argv[2].split(',').map((url) => new Redis(url))
const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n')

const DELAY = 200
const redlock = (retryCount) => new Redlock(clients, { retryCount, retryDelay: DELAY, retryJitter: 100 })
const once = redlock(0)
for (const one of [once]) one.on('clientError', () => {})

const held = new Map()
let next = 0

// Returns a handle of the lock, or null if it was not granted.
async function lock({ name, ttl_ms: ttl, wait_ms: wait = 0 }) {
  const until = Date.now() + wait
  for (;;) {
    try {
      const taken = await once.lock(name, ttl)
      held.set(++next, taken)
      return next
    } catch {
      const left = until - Date.now()
      if (left <= 0) return null
      await new Promise((resolve) => setTimeout(resolve, Math.min(left, DELAY * (0.75 + Math.random() / 2))))
    }
  }
}

// redlock throws if the lock is no longer held. Then returns false.
async function act(handle, what) {
  try {
    held.set(handle, (await what(held.get(handle))) ?? held.get(handle))
    return true
  } catch {
    return false
  }
}

// Measures lock and unlock. Each task has its own name.
async function bench({ name, tasks, seconds, ttl_ms: ttl }) {
  const begin = performance.now()
  const end = begin + seconds * 1e3
  const times = []
  const task = async (number) => {
    let count = 0
    for (;;) {
      const asked = performance.now()
      if (asked >= end) return count
      const taken = await once.lock(`${name}${number}`, ttl)
      await taken.unlock()
      times.push((performance.now() - asked) * 1e3)
      count++
    }
  }
  const counts = await Promise.all(Array.from({ length: tasks }, (_, number) => task(number)))
  const took = (performance.now() - begin) / 1e3
  times.sort((a, b) => a - b)
  const at = (share) => times[Math.min(Math.floor(share * times.length), times.length - 1)]
  return { seconds: took, counts, p50_us: at(0.5), p99_us: at(0.99), worst_us: at(1) }
}

const OPS = {
  lock,
  extend: ({ handle, ttl_ms: ttl }) => act(handle, (taken) => taken.extend(ttl)),
  release: ({ handle }) => act(handle, (taken) => taken.unlock()),
  bench,
}

Promise.all(clients.map((client) => client.ping())).then(() => say({ ready: true, version: `redlock ${version}` }))
readline
  .createInterface({ input: process.stdin })
  .on('line', async (line) => {
    const request = JSON.parse(line)
    try {
      say({ id: request.id, ok: true, value: await OPS[request.op](request) })
    } catch (error) {
      say({ id: request.id, ok: false, error: String(error) })
    }
  })
  .on('close', () => process.exit(0))
