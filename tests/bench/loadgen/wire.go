package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// APIs, and the versions in which they are asked. Those from 8 and up of these are flexible (KIP-482).
const (
	produce                = 0
	fetch                  = 1
	offsetCommit           = 8
	joinGroup              = 11
	heartbeat              = 12
	syncGroup              = 14
	consumerGroupHeartbeat = 68
	shareGroupHeartbeat    = 76
	shareFetch             = 78
	shareAcknowledge       = 79
	streamsGroupHeartbeat  = 88
	alterShareGroupOffsets = 91

	produceVersion        = 7
	fetchVersion          = 11
	classicCommitVersion  = 7
	consumerCommitVersion = 9
	joinVersion           = 3
	heartbeatVersion      = 2
	syncVersion           = 2
	consumerVersion       = 1
	shareVersion          = 1
	streamsVersion        = 1
	alterShareVersion     = 0
)

type uuid [16]byte

// writer appends Kafka's primitive types.
type writer struct{ bytes []byte }

func (w *writer) int16(value int)  { w.bytes = binary.BigEndian.AppendUint16(w.bytes, uint16(value)) }
func (w *writer) int32(value int)  { w.bytes = binary.BigEndian.AppendUint32(w.bytes, uint32(value)) }
func (w *writer) int64(value int)  { w.bytes = binary.BigEndian.AppendUint64(w.bytes, uint64(value)) }
func (w *writer) varint(value int) { w.bytes = binary.AppendUvarint(w.bytes, uint64(value)) }
func (w *writer) noTags()          { w.varint(0) }
func (w *writer) null()            { w.varint(0) }

func (w *writer) string(value string) {
	w.int16(len(value))
	w.bytes = append(w.bytes, value...)
}

func (w *writer) compact(value string) {
	w.varint(len(value) + 1)
	w.bytes = append(w.bytes, value...)
}

func (w *writer) content(value []byte) {
	w.int32(len(value))
	w.bytes = append(w.bytes, value...)
}

// reader takes Kafka's primitive types from an answer.
type reader struct {
	bytes    []byte
	position int
}

func (r *reader) skip(count int) { r.position += count }

func (r *reader) int16() int {
	r.position += 2
	return int(int16(binary.BigEndian.Uint16(r.bytes[r.position-2:])))
}

func (r *reader) int32() int {
	r.position += 4
	return int(int32(binary.BigEndian.Uint32(r.bytes[r.position-4:])))
}

func (r *reader) int64() int {
	r.position += 8
	return int(binary.BigEndian.Uint64(r.bytes[r.position-8:]))
}

func (r *reader) varint() int {
	value, size := binary.Uvarint(r.bytes[r.position:])
	r.position += size
	return int(value)
}

func (r *reader) text(length int) string {
	if length < 0 {
		return ""
	}
	r.position += length
	return string(r.bytes[r.position-length : r.position])
}

func (r *reader) string() string  { return r.text(r.int16()) }
func (r *reader) compact() string { return r.text(r.varint() - 1) }

// frame returns a request with its length.
func frame(api, version int, isFlexible bool, body []byte) []byte {
	w := &writer{}
	w.int32(0)
	w.int16(api)
	w.int16(version)
	w.int32(7) // the correlation id
	w.string("bench")
	if isFlexible {
		w.noTags()
	}
	w.bytes = append(w.bytes, body...)
	binary.BigEndian.PutUint32(w.bytes, uint32(len(w.bytes)-4))
	return w.bytes
}

type connection struct {
	socket net.Conn
	buffer *bufio.Reader
}

func connect(address string) *connection {
	for attempt := 0; ; attempt++ {
		socket, err := net.Dial("tcp", address)
		if err == nil {
			return &connection{socket, bufio.NewReaderSize(socket, 1<<12)}
		}
		if attempt == 50 {
			panic(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *connection) send(request []byte) {
	if _, err := c.socket.Write(request); err != nil {
		panic(err)
	}
}

// receive returns the next answer, from behind its correlation id on.
func (c *connection) receive() *reader {
	var size [4]byte
	if _, err := io.ReadFull(c.buffer, size[:]); err != nil {
		panic(err)
	}
	content := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.buffer, content); err != nil {
		panic(err)
	}
	return &reader{content, 4}
}

func (c *connection) ask(request []byte) *reader {
	c.send(request)
	return c.receive()
}

func check(what string, errorCode int) {
	if errorCode != 0 {
		panic(fmt.Sprintf("%s: error code %d", what, errorCode))
	}
}
