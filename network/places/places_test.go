package places

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
)

// caller is a connection from an address.
type caller struct {
	net.Conn
	from   string
	closed bool
}

func (c *caller) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1} }

func (c *caller) Close() error {
	c.closed = true
	return nil
}

// open are the callers that still have their places.
func open(all []*caller) (from []string) {
	for _, c := range all {
		if !c.closed {
			from = append(from, c.from)
		}
	}
	return from
}

func TestTheOldestLosesItsPlace(t *testing.T) {
	for name, row := range map[string]struct{ come, stay []string }{
		"all have one": {[]string{"192.0.2.1", "192.0.2.1", "192.0.2.2"}, []string{"192.0.2.1", "192.0.2.1", "192.0.2.2"}},
		"one source takes no places of others": {[]string{"192.0.2.2", "192.0.2.1", "192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"},
			[]string{"192.0.2.2", "192.0.2.1", "::ffff:192.0.2.1"}},
		"many sources keep nobody out": {[]string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"},
			[]string{"192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"}},
		"one machine has all addresses of its network": {[]string{"2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"},
			[]string{"2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(4, 2)
			var all []*caller
			for _, from := range row.come {
				c := &caller{from: from}
				all = append(all, c)
				p.Take(c)
			}
			assert.Equal(t, row.stay, open(all))
		})
	}
}

func TestWhoLeavesIsClosedNoMore(t *testing.T) {
	p := New(1, 1)
	first, second, third := &caller{from: "192.0.2.1"}, &caller{from: "192.0.2.1"}, &caller{from: "192.0.2.2"}
	leave := p.Take(first)
	leave()
	leave()
	leave = p.Take(second)
	assert.Equal(t, []string{"192.0.2.1", "192.0.2.1"}, open([]*caller{first, second}))
	p.Take(third)
	leave() // it has lost its place already
	assert.Equal(t, []string{"192.0.2.1", "192.0.2.2"}, open([]*caller{first, second, third}))
	p.Take(&caller{from: "192.0.2.3"})
	assert.True(t, third.closed)
}
