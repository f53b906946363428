package app_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

func TestAMoveGoesOnWhileTheWayOfItsDataChanges(t *testing.T) {
	m := begin(t, some(t), true)
	now := func() *movecontrol.Status {
		status, err := m.Client.Status(m.ctx)
		require.NoError(t, err)
		return status
	}
	m.do(movecontrol.Task{Kind: movecontrol.Pass})
	assert.True(t, now().Connected)
	assert.False(t, now().Direct)

	// The sender dials the receiver when what was joined is cut; the wire joins them anew at
	// the same time, and may be the first.
	require.NoError(t, m.Client.Tell(m.ctx, movecontrol.Peers{Addresses: []string{m.Address()}}))
	assert.False(t, now().Direct, "a connection that works is kept")
	for range 50 {
		if now().Direct {
			break
		}
		m.Wire.CutAfter(1 << 20)
		write(t, m.Source, "data/large", random(t, 6<<20))
		m.do(movecontrol.Task{Kind: movecontrol.Pass})
	}
	require.True(t, now().Direct)
	passed := m.Wire.Bytes()
	write(t, m.Source, "data/large", random(t, 6<<20))
	m.do(movecontrol.Task{Kind: movecontrol.Pass})
	assert.True(t, now().Direct, "nobody joins what is connected directly")
	assert.Equal(t, passed, m.Wire.Bytes(), "nothing goes another way")

	// A stranger in the place of the receiver is no receiver.
	require.NoError(t, m.Client.Tell(m.ctx, movecontrol.Peers{Addresses: []string{m.Control()}}))
	write(t, m.Source, "data/large", random(t, 6<<20))
	m.do(movecontrol.Task{Kind: movecontrol.Final})
	assert.False(t, now().Direct)
	m.verified(true)
	same(t, m, filepath.Join("data", "large"))
}
