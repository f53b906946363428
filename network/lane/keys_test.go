package lane

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

// changing is a gateway that changes its key, and what the gateways of others say.
type changing struct {
	*Keys
	t      *testing.T
	others []Status
	// given are the keys for which connections were given up.
	given []Key
}

func (c *changing) rotate(age time.Duration) {
	c.t.Helper()
	require.NoError(c.t, c.Keys.rotate(klog.Background(), age, c.others, func(own Key) { c.given = append(c.given, own) }))
}

func (c *changing) published() []Key {
	c.t.Helper()
	published, err := c.Published()
	require.NoError(c.t, err)
	return published
}

// restart is what a program sees that starts now.
func (c *changing) restart() { c.Keys = NewKeys(c.dir) }

func TestAKeyChangesStepByStepAndSurvivesDeathInEach(t *testing.T) {
	for _, dies := range []bool{false, true} {
		c := &changing{Keys: NewKeys(t.TempDir()), t: t}
		restart := func() {
			if dies {
				c.restart()
			}
		}
		old := c.published()[0]
		c.others = []Status{{Peer: "w1", Accepts: []Key{old}, Own: []Key{old}}, {Peer: "w2", Accepts: []Key{old}, Own: []Key{old}}}
		c.rotate(time.Hour)
		assert.Equal(t, []Key{old}, c.published(), "nobody asked for another one, and it is not old")

		require.NoError(t, c.Begin())
		restart()
		c.rotate(time.Hour)
		both := c.published()
		require.Len(t, both, 2)
		next := both[1]
		require.NoError(t, c.Begin())
		assert.Equal(t, both, c.published(), "one at a time")

		c.others[0].Accepts = both
		c.rotate(time.Hour)
		restart()
		assert.Equal(t, both, c.published())
		assert.Equal(t, old, c.shown().Key, "one of the others does not know the next one")
		c.others[1].Accepts = both
		c.rotate(time.Hour)
		assert.Equal(t, next, c.shown().Key)
		assert.Equal(t, both, c.published(), "there are connections with the old one")
		if restart(); dies {
			assert.Equal(t, both, c.published())
			assert.Equal(t, old, c.shown().Key, "which is as good")
			c.rotate(time.Hour)
		}
		c.rotate(time.Hour)
		assert.Equal(t, []Key{next}, c.given, "which are given up")
		assert.Equal(t, both, c.published())
		c.others[0].Own, c.others[1].Own = []Key{next}, nil
		c.rotate(time.Hour)
		restart()
		assert.Equal(t, []Key{next}, c.published())
		assert.Equal(t, next, c.shown().Key)
		entries, err := os.ReadDir(c.dir)
		require.NoError(t, err)
		assert.Len(t, entries, 1, "nothing is left of the old one")
	}
}

func TestWhoeverDeletesTheFileOfAKeyGetsAnother(t *testing.T) {
	c := &changing{Keys: NewKeys(t.TempDir()), t: t}
	old := c.published()[0]
	c.others = []Status{{Peer: "w1", Accepts: []Key{old}, Own: []Key{old}}}
	require.NoError(t, os.Remove(c.path()))
	c.rotate(0)
	both := c.published()
	require.Len(t, both, 2)
	assert.Equal(t, old, both[0])
	c.restart()
	assert.Equal(t, both, c.published(), "the old one is there until others know the next one")

	require.NoError(t, os.Remove(c.nextPath()))
	c.rotate(0)
	assert.Equal(t, []Key{old}, c.published(), "who deletes the next one wants none")

	require.NoError(t, os.WriteFile(c.path(), []byte("of a backup"), 0o600))
	c.rotate(0)
	require.Len(t, c.published(), 2)
	assert.Equal(t, old, c.published()[0], "as is whoever writes another one")

	next := c.published()[1]
	require.NoError(t, os.Remove(c.path()))
	c.restart()
	assert.Equal(t, []Key{next}, c.published(), "where nobody saw it, others know the next one")
}

func TestAKeyThatIsOldChanges(t *testing.T) {
	c := &changing{Keys: NewKeys(t.TempDir()), t: t}
	c.published()
	long := time.Now().Add(-48 * time.Hour)
	require.NoError(t, os.Chtimes(c.path(), long, long))
	c.rotate(0)
	c.rotate(72 * time.Hour)
	assert.Len(t, c.published(), 1)
	c.rotate(47 * time.Hour)
	require.Len(t, c.published(), 2)

	c.rotate(47 * time.Hour)
	assert.False(t, c.turned, "no lane is there by which it could be known")
	c.others = []Status{{Peer: "away"}}
	c.rotate(47 * time.Hour)
	assert.False(t, c.turned, "a gateway is away that knows only the old one")
	require.NoError(t, os.Chtimes(c.nextPath(), long, long))
	c.rotate(47 * time.Hour)
	assert.True(t, c.turned, "but for a day")
	day := time.Now().Add(-25 * time.Hour)
	require.NoError(t, os.Chtimes(c.nextPath(), day, day))
	c.others[0].Own = c.published()[:1]
	c.rotate(47 * time.Hour)
	assert.Len(t, c.published(), 2, "it comes back, and has a connection of the old key")
	assert.Len(t, c.given, 1)
	require.NoError(t, os.Chtimes(c.nextPath(), long, long))
	c.rotate(47 * time.Hour)
	assert.Len(t, c.published(), 1, "which it does not keep for ever")
}

func TestAKeyOfAWrongClockChanges(t *testing.T) {
	c := &changing{Keys: NewKeys(t.TempDir()), t: t}
	c.published()
	future := time.Now().Add(48 * time.Hour)
	require.NoError(t, os.Chtimes(c.path(), future, future))
	c.rotate(72 * time.Hour)
	assert.Len(t, c.published(), 1, "it may be wrong by some hours")
	c.rotate(47 * time.Hour)
	assert.Len(t, c.published(), 2, "nobody knows how old it is, and it is not to be kept until then")
}

func TestAKeyThatCannotBeReadIsSaid(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, keyFile), []byte("x"), 0o600))
	_, err := NewKeys(dir).Published()
	require.ErrorContains(t, err, "gateway.key holds no key: delete it, and a new one is made")
	c := &changing{Keys: NewKeys(t.TempDir()), t: t}
	published := c.published()
	require.NoError(t, os.WriteFile(c.nextPath(), []byte("x"), 0o600))
	err = c.Keys.rotate(klog.Background(), 0, nil, func(Key) {})
	require.ErrorContains(t, err, "gateway-next.key holds no key: delete it")
	assert.Equal(t, published, c.published(), "and the other one is used")
	refused := keep(filepath.Join(dir, "x"), nil, func(string, string) error { return errors.New("no room") })
	require.ErrorContains(t, refused, "keep the gateway's key: no room")
}

func TestATickSaysWhichKeysAreExpected(t *testing.T) {
	many := make([]Key, toldKeys+1)
	for i := range many {
		many[i] = Key{byte(i)}
	}
	for n := range many {
		frame := newTick(byte(n%4), many[:n])
		said, keys := readTick(frame[frameHeader:])
		assert.Equal(t, byte(n%4), said)
		assert.Equal(t, many[:min(n, toldKeys)], append([]Key{}, keys...))
	}
}
