// The consumer of KafkaJS's documentation with its producer: each record is booked, offsets go by default.
//
// node of_kafkajs.js BOOTSTRAP GROUP TOPIC OUTPUT

import { Kafka } from 'kafkajs'

const [bootstrap, groupId, topic, output] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'exam', brokers: bootstrap.split(',') })
const producer = kafka.producer()
const consumer = kafka.consumer({ groupId })

const run = async () => {
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message }) => {
      await producer.send({ topic: output, messages: [{ value: message.value }] })
    }
  })
}

run().catch(error => console.error(error))

for (const type of ['unhandledRejection', 'uncaughtException']) {
  process.on(type, async error => {
    try {
      console.error(type, error)
      await consumer.disconnect()
      process.exit(0)
    } catch {
      process.exit(1)
    }
  })
}

for (const type of ['SIGTERM', 'SIGINT', 'SIGUSR2']) {
  process.once(type, async () => {
    try {
      await consumer.disconnect()
    } finally {
      process.kill(process.pid, type)
    }
  })
}
