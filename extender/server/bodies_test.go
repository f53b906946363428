package server_test

import (
	"errors"
	"io"
)

// endless is a body without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// failing is a body whose sender hangs up.
type failing struct{}

func (failing) Read([]byte) (int, error) {
	return 0, errors.New("connection reset")
}

// holding is a body of unknown length that stays open until it is released, and
// is empty then.
type holding struct {
	held    chan<- struct{}
	release <-chan struct{}
}

func (h *holding) Read([]byte) (int, error) {
	h.held <- struct{}{}
	<-h.release
	return 0, io.EOF
}
