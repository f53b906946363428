package send

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// Meter counts how far a task is. It may be read while the task runs.
type Meter struct {
	bytes, bytesTotal, files, filesTotal, sent, stored, reconnects atomic.Int64

	mutex sync.Mutex
	words string
	// samples are the latest states of bytes, oldest first.
	samples []sample
}

type sample struct {
	at    time.Time
	bytes int64
}

const (
	samplesEvery = 500 * time.Millisecond
	samplesKept  = 20
)

// step says what is being done.
func (m *Meter) step(words string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.words = words
}

// begin begins to count something else; total may be 0 while it is not known.
func (m *Meter) begin(words string, bytesTotal, filesTotal int64) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.words, m.samples = words, nil
	m.bytes.Store(0)
	m.files.Store(0)
	m.bytesTotal.Store(bytesTotal)
	m.filesTotal.Store(filesTotal)
}

// Progress is how far the task is now.
func (m *Meter) Progress(now time.Time) movecontrol.Progress {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	p := movecontrol.Progress{
		Step: m.words, BytesDone: m.bytes.Load(), BytesTotal: m.bytesTotal.Load(),
		FilesDone: m.files.Load(), FilesTotal: m.filesTotal.Load(),
		BytesSent: m.sent.Load(), BytesStored: m.stored.Load(), Reconnects: m.reconnects.Load(),
	}
	if p.BytesTotal > 0 {
		p.BytesDone = min(p.BytesDone, p.BytesTotal)
	}
	if len(m.samples) == 0 || now.Sub(m.samples[len(m.samples)-1].at) >= samplesEvery {
		m.samples = append(m.samples, sample{now, p.BytesDone})
		if len(m.samples) > samplesKept {
			m.samples = m.samples[1:]
		}
	}
	oldest := m.samples[0]
	if over := now.Sub(oldest.at); over >= samplesEvery {
		p.BytesPerSecond = int64(float64(p.BytesDone-oldest.bytes) / over.Seconds())
	}
	if p.BytesPerSecond > 0 && p.BytesTotal > p.BytesDone {
		p.SecondsLeft = 1 + (p.BytesTotal-p.BytesDone)/p.BytesPerSecond
	}
	return p
}
