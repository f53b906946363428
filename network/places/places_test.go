package places

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOneSourceTakesNoPlacesOfOthers(t *testing.T) {
	s := NewSources(2)
	at := func(text string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(text), Port: 1} }
	first := s.Take(at("192.0.2.1"))
	require.NotNil(t, first)
	assert.NotNil(t, s.Take(at("::ffff:192.0.2.1")), "the same, as a socket for both families has it")
	assert.Nil(t, s.Take(at("192.0.2.1")))
	assert.NotNil(t, s.Take(at("192.0.2.2")))
	first()
	first()
	assert.NotNil(t, s.Take(at("192.0.2.1")))
	assert.Nil(t, s.Take(at("192.0.2.1")), "who leaves twice has left once")
	assert.NotNil(t, s.Take(at("2001:db8::1")))
	assert.NotNil(t, s.Take(at("2001:db8::2")))
	assert.Nil(t, s.Take(at("2001:db8::3")), "one machine has all addresses of its network")
}
