package tree

import "fmt"

// together collects small files of a batch that a cold scan reads at once. It is of use
// only where [openedFile.bypass] is.
type together struct {
	aio   *aio
	files []waiting
	// none: the kernel has no such reads, or no more of them.
	none bool
}

// waiting is a file of a batch that is open and still to be read.
type waiting struct {
	file *openedFile
	at   int
}

// takes says whether a file that is open can be read with others; it is then read past
// the page cache.
func (t *together) takes(f *openedFile, e *Entry, sparse bool) bool {
	if t.none || sparse || e.Size > togetherFile {
		return false
	}
	if t.aio == nil {
		var err error
		if t.aio, err = newAIO(); err != nil {
			t.none = true
			return false
		}
	}
	f.bypass()
	return f.direct.Load()
}

// lookAll looks at the names of a batch until the scan ends.
func (l *looker) lookAll(b *batch, ended func() bool) {
	for i, name := range b.names {
		if ended() {
			break
		}
		b.found = append(b.found, l.look(b.dir, name, b.before[i]))
		seen := &b.found[i]
		if seen.open == nil {
			continue
		}
		if !l.together.aio.has(seen.entry.Size) {
			l.readTogether(b)
		}
		l.together.aio.ask(seen.open.fd, seen.entry.Size)
		l.together.files = append(l.together.files, waiting{file: seen.open, at: i})
		seen.open = nil
	}
	l.readTogether(b)
}

// readTogether reads the files that wait. One that cannot be read so is read alone: what
// is wrong with it, if anything, shows there.
func (l *looker) readTogether(b *batch) {
	if len(l.together.files) == 0 {
		return
	}
	contents := l.together.aio.read()
	for n, w := range l.together.files {
		seen := &b.found[w.at]
		err := l.settleOne(seen, w.file, contents[n])
		w.file.close()
		switch {
		case gone(err):
			*seen = sight{unsettled: true}
		case err != nil:
			*seen = sight{err: fmt.Errorf("read %q: %w", seen.entry.Path, err)}
		}
	}
	l.together.files = l.together.files[:0]
}

func (l *looker) settleOne(seen *sight, f *openedFile, content []byte) error {
	if content == nil {
		f.through()
		return l.readAlone(seen, f)
	}
	content = content[:min(uint64(len(content)), seen.entry.Size)]
	seen.blocks = appendHashes(nil, content)
	return l.hashed(seen, f, uint64(len(content)))
}
