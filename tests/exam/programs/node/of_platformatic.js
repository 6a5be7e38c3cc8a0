// The consumer of @platformatic/kafka's README (its loop over the stream) with its producer: each record is booked.
//
// node of_platformatic.js BOOTSTRAP GROUP TOPIC OUTPUT

import { Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [bootstrap, groupId, topic, output] = process.argv.slice(2)
const bootstrapBrokers = bootstrap.split(',')
const producer = new Producer({ clientId: 'exam-producer', bootstrapBrokers, serializers: stringSerializers })
const consumer = new Consumer({ groupId, clientId: 'exam', bootstrapBrokers, deserializers: stringDeserializers })

const stream = await consumer.consume({
  autocommit: true,
  topics: [topic],
  mode: 'committed',
  fallbackMode: 'earliest',
  sessionTimeout: 10000,
  heartbeatInterval: 500
})

process.once('SIGTERM', () => stream.close())

for await (const message of stream) {
  await producer.send({ messages: [{ topic: output, value: message.value }] })
}

await consumer.close()
await producer.close()
