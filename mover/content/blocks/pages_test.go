package blocks

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/tree"
)

// manifest scans a volume.
func manifest(t *testing.T, volume string) *tree.Manifest {
	t.Helper()
	scratch := t.TempDir()
	path := filepath.Join(scratch, "manifest")
	_, err := tree.Scan(t.Context(), tree.Options{Root: volume, Manifest: path, Scratch: scratch})
	require.NoError(t, err)
	m, err := tree.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// sent is what went over the wire.
type sent struct{ forth, back, questions int }

// bring makes one volume equal to another by what differs in their manifests, and says what went over the wire.
func bring(t *testing.T, from, to string, source, target *tree.Manifest) (wire sent) {
	t.Helper()
	receiver, err := NewReceiver(to)
	require.NoError(t, err)
	defer receiver.Close()
	var done int64
	sender, err := NewSender(from, func(message []byte) error {
		wire.forth += len(message)
		return receiver.Apply(message)
	}, func(n int64) { done += n })
	require.NoError(t, err)
	defer sender.Close()
	var answer []byte
	receiver.Answer = func(hashes []byte) error {
		wire.back += len(hashes)
		answer = hashes
		return nil
	}
	sender.Ask = func(message []byte) ([]byte, error) {
		wire.forth += len(message)
		wire.questions++
		err := receiver.Apply(message) // it answers meanwhile
		return answer, err
	}
	var all int64
	for c, err := range tree.Changes(target, source) {
		require.NoError(t, err)
		if Carries(c) {
			all += int64(c.New.Size)
			require.NoError(t, sender.Send(c))
		}
	}
	assert.Equal(t, all, done, "all of each file is done in the end")
	return wire
}

func same(t *testing.T, from, to string) {
	t.Helper()
	want, err := os.ReadFile(from)
	require.NoError(t, err)
	got, err := os.ReadFile(to)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "the files differ")
}

func TestOnlyThePagesThatDifferAreSent(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	content := random(1, 16<<20+100)
	require.NoError(t, os.WriteFile(filepath.Join(to, "db"), content, 0o600))
	before := manifest(t, to)
	r := rand.New(rand.NewPCG(2, 3)) //nolint:gosec // not a secret
	pages := map[int]bool{}
	for len(pages) < 16<<20/pageSize/100 {
		page := r.IntN(16 << 20 / pageSize)
		pages[page] = true
		copy(content[page*pageSize+r.IntN(pageSize-8):], "changed")
	}
	require.NoError(t, os.WriteFile(filepath.Join(from, "db"), content, 0o600))
	wire := bring(t, from, to, manifest(t, from), before)
	same(t, filepath.Join(from, "db"), filepath.Join(to, "db"))
	changed := float64(len(pages) * pageSize)
	assert.Less(t, float64(wire.forth+wire.back)/changed, 1.1)
	assert.Equal(t, 1, wire.questions)

	assert.Zero(t, bring(t, from, to, manifest(t, from), manifest(t, to)).questions, "nothing differs any more")
}

// TestPagesAreRightWhateverChanged changes files in many ways, also the one at the target behind the back of its manifest.
func TestPagesAreRightWhateverChanged(t *testing.T) {
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // not a secret
		from, to := t.TempDir(), t.TempDir()
		old := random(seed, LargeFrom+r.IntN(3<<20))
		require.NoError(t, os.WriteFile(filepath.Join(to, "db"), old, 0o600))
		before := manifest(t, to)
		now := slices.Clone(old)
		switch r.IntN(3) {
		case 0:
			now = append(now, random(seed+1000, r.IntN(1<<20))...)
		case 1:
			now = now[:max(LargeFrom, len(now)-r.IntN(1<<20))]
		}
		for range r.IntN(40) {
			length := 1 << r.IntN(21)
			at := r.IntN(len(now))
			if r.IntN(2) == 0 {
				copy(now[at:], make([]byte, length))
			} else {
				copy(now[at:], random(r.Uint64(), length))
			}
		}
		require.NoError(t, os.WriteFile(filepath.Join(from, "db"), now, 0o600))
		source := manifest(t, from)
		if r.IntN(2) == 0 {
			// Whatever is in the blocks that differ by now, the pages that are not as they should be are sent.
			file, err := os.OpenFile(filepath.Join(to, "db"), os.O_WRONLY, 0)
			require.NoError(t, err)
			for c, err := range tree.Changes(before, source) {
				require.NoError(t, err)
				for part, err := range c.Ranges() {
					require.NoError(t, err)
					_, err = file.WriteAt(random(r.Uint64(), 100), int64(part.Offset)+r.Int64N(int64(part.Length)))
					require.NoError(t, err)
				}
			}
			require.NoError(t, file.Close())
		}
		bring(t, from, to, source, before)
		same(t, filepath.Join(from, "db"), filepath.Join(to, "db"))
	}
}

func TestAReceiverThatAnswersWrongIsRefused(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	content := random(1, LargeFrom*2)
	require.NoError(t, os.WriteFile(filepath.Join(to, "db"), content, 0o600))
	content[100]++
	require.NoError(t, os.WriteFile(filepath.Join(from, "db"), content, 0o600))
	for _, length := range []int{0, pageHash, 8*pageHash - 1, 9 * pageHash} {
		sender, err := NewSender(from, func([]byte) error { return nil }, func(int64) {})
		require.NoError(t, err)
		sender.Ask = func([]byte) ([]byte, error) { return make([]byte, length), nil }
		for c, err := range tree.Changes(manifest(t, to), manifest(t, from)) {
			require.NoError(t, err)
			if Carries(c) {
				require.ErrorContains(t, sender.Send(c), "was asked for the hashes of 8 pages")
			}
		}
		sender.Close()
	}
}

// asking is a question about parts, given as pairs of offset and length.
func asking(parts ...uint64) []byte {
	message := []byte{messageAsk}
	for pair := range slices.Chunk(parts, 2) {
		message = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(message, pair[0]), uint32(pair[1]))
	}
	return message
}

func TestAQuestionAboutTooMuchIsRefused(t *testing.T) {
	volume := t.TempDir()
	const size = 2 << 20
	require.NoError(t, os.WriteFile(filepath.Join(volume, "f"), make([]byte, 100), 0o600))
	file, err := encode(messageFile, header{Path: []byte("f"), Size: size, Names: 1})
	require.NoError(t, err)
	many := make([]uint64, 0, 2*(maxPages+1))
	for range maxPages + 1 {
		many = append(many, 0, 1)
	}
	for name, c := range map[string]struct {
		message []byte
		pages   int
	}{
		"pages that are there and that are not": {asking(0, 4096, 1<<20, 32<<10), 9},
		"as many as may be":                     {asking(many[2:]...), maxPages},
		"one more":                              {asking(many...), 0},
		"behind the end":                        {asking(size-10, 11), 0},
		"an offset that overflows":              {asking(1<<63-1, 10), 0},
		"a negative offset":                     {asking(1<<64-1, 10), 0},
		"nothing":                               {asking(0, 0), 0},
		"a part that is sent whole":             {asking(0, rewritten), 0},
		"no part":                               {[]byte{messageAsk}, 0},
		"half a part":                           {asking(0, 4096)[:9], 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReceiver(volume)
			require.NoError(t, err)
			defer r.Close()
			var answer []byte
			r.Answer = func(hashes []byte) error { answer = hashes; return nil }
			require.Error(t, r.Apply(c.message), "a question about no file")
			require.NoError(t, r.Apply(file))
			err = r.Apply(c.message)
			assert.Equal(t, c.pages > 0, err == nil, err)
			assert.Len(t, answer, c.pages*pageHash)
		})
	}
}
