package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/wire"
)

const (
	// firstRead is the room for a body at first, and step is how much larger it gets
	// when it is full: whoever announces a large body must send some of it before
	// there is room for the rest.
	firstRead = 64 << 10
	step      = 16
	// maxKept bounds what an idle buffer holds on to.
	maxKept = 1 << 20
)

// buffers are reused from request to request.
type buffers struct {
	body   []byte
	names  []string
	answer []byte
}

func (s *Server) takeBuffers() *buffers {
	if b, ok := s.buffers.Get().(*buffers); ok {
		return b
	}
	return &buffers{}
}

func (s *Server) giveBuffers(b *buffers) {
	if cap(b.body) > maxKept || cap(b.answer) > maxKept || cap(b.names) > maxKept/32 {
		return
	}
	// The names are cut out of a text that must not stay for them.
	clear(b.names)
	b.body, b.names, b.answer = b.body[:0], b.names[:0], b.answer[:0]
	s.buffers.Put(b)
}

// problem is an error with a status code of its own. It is one sentence for the
// caller.
type problem struct {
	code     int
	sentence string
}

func (p *problem) Error() string { return p.sentence }

var (
	errTooLarge = &problem{http.StatusRequestEntityTooLarge, fmt.Sprintf(
		"the request is larger than %d MiB: set nodeCacheCapable: true in the scheduler's configuration, so that it sends node names instead of whole nodes", maxBody>>20)}
	errTooMany = &problem{http.StatusServiceUnavailable,
		"too many large requests at once: try again, and set nodeCacheCapable: true in the scheduler's configuration"}
	errTooOdd = &problem{http.StatusServiceUnavailable,
		"the request is not written as kube-scheduler does, and there is no memory to look closer: send what kube-scheduler sends, or try again"}
)

// fail makes err the answer and returns its status code, code unless err is a
// problem.
func (b *buffers) fail(r *http.Request, err error, code int) int {
	if special := (*problem)(nil); errors.As(err, &special) {
		code = special.code
	}
	klog.FromContext(r.Context()).V(2).Info("Refused a request", "path", r.URL.Path, "code", code, "err", err)
	b.answer = wire.AppendError(b.answer[:0], err.Error())
	return code
}

// readBody reads the body of a request whole.
func (b *buffers) readBody(w http.ResponseWriter, r *http.Request, memory *hold) error {
	// A length that is not known counts as the largest, and is -1.
	size := int64(maxBody)
	if r.ContentLength >= 0 {
		size = r.ContentLength
	}
	if size > maxBody {
		return errTooLarge
	}
	if !memory.more(size) {
		return errTooMany
	}
	body := http.MaxBytesReader(w, r.Body, size)
	for {
		if len(b.body) == cap(b.body) {
			// One byte more than there should be, to see that there is none.
			larger := make([]byte, len(b.body), min(max(firstRead, step*len(b.body)), int(size)+1))
			copy(larger, b.body)
			b.body = larger
		}
		n, err := body.Read(b.body[len(b.body):cap(b.body)])
		b.body = b.body[:len(b.body)+n]
		tooLarge := (*http.MaxBytesError)(nil)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			memory.less(size - int64(len(b.body)))
			return nil
		case errors.As(err, &tooLarge):
			return errTooLarge
		default:
			return fmt.Errorf("the request did not arrive whole: send it again: %w", err)
		}
	}
}
