// Package dnstest serves DNS in tests.
package dnstest

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// Start serves DNS on a loopback address until the test ends, and returns this address. respond gets each query as the response without answers, and
// completes it. If it returns false, nothing is sent back.
func Start(t testing.TB, respond func(*dnsmessage.Message) bool) (address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	var done sync.WaitGroup
	done.Go(func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if !respond(&m) {
				continue
			}
			if reply, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	})
	t.Cleanup(done.Wait)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String()
}

// Answer adds an IPv4 address for the name that was asked for.
func Answer(m *dnsmessage.Message, address [4]byte) {
	m.Answers = append(m.Answers, dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
		Body:   &dnsmessage.AResource{A: address},
	})
}
