package feed

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// lines collects what is logged.
type lines struct{ count int }

func (l *lines) Write(p []byte) (int, error) {
	l.count++
	return len(p), nil
}

func TestOutageIsLoggedOnce(t *testing.T) {
	logged := &lines{}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logged)))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	o := &outage{kind: "nodes"}
	refused, forbidden := errors.New("connection refused"), errors.New("forbidden")
	for _, step := range []struct {
		what string
		err  error
		want int
	}{
		{what: "all is well", want: 0},
		{what: "it fails", err: refused, want: 1},
		{what: "it fails in the same way", err: &url.Error{Op: "Get", URL: "http://home?timeout=5m", Err: refused}, want: 1},
		{what: "and so does the next attempt", err: &url.Error{Op: "Get", URL: "http://home?timeout=6m", Err: refused}, want: 1},
		{what: "it fails in another way", err: forbidden, want: 2},
		{what: "it is well again", want: 3},
		{what: "it stays well", want: 3},
	} {
		o.note(ctx, step.err)
		assert.Equal(t, step.want, logged.count, step.what)
	}
	stop()
	o.note(ctx, refused)
	assert.Equal(t, 3, logged.count, "a program that stops has no outage")
}
