package mtls

import (
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type handshakes int

func (h *handshakes) Expires(string, time.Time) {}
func (h *handshakes) ReloadFailed()             {}
func (h *handshakes) HandshakeFailed()          { *h++ }

func TestRefusalsAreAllCountedAndFewLogged(t *testing.T) {
	now, failed := time.Unix(1000, 0), handshakes(0)
	var lines []string
	log := &refusals{
		logger:   funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}),
		now:      func() time.Time { return now },
		observer: &failed,
	}
	write := func(line string) {
		written, err := log.Write([]byte(line))
		require.NoError(t, err)
		assert.Len(t, line, written)
	}
	for range 100 {
		write("http: TLS handshake error from 192.0.2.1:1: tls: client didn't provide a certificate\n")
	}
	assert.Len(t, lines, 1)
	now = now.Add(quiet)
	write("http: panic serving 192.0.2.1:1\n")
	require.Len(t, lines, 2)
	assert.Contains(t, lines[1], `"refusedBefore"=99`)
	assert.EqualValues(t, 100, failed)
}
