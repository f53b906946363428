package feed

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// outage logs when a kind can no longer be read, why, and when it can be again:
// once each, however often that is tried in between. A reflector itself keeps
// silent about an API server that it cannot reach.
type outage struct {
	kind string
	last atomic.Pointer[string]
}

// note takes the outcome of an attempt to read.
func (o *outage) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	why := ""
	// The URL differs from attempt to attempt, the cause does not.
	if problem := (*url.Error)(nil); errors.As(err, &problem) {
		err = problem.Err
	}
	if err != nil {
		why = err.Error()
	}
	before := ""
	if last := o.last.Swap(&why); last != nil {
		before = *last
	}
	switch {
	case why == before:
	case err != nil:
		klog.FromContext(ctx).Info("Cannot read from the API server, trying on", "resource", o.kind, "err", err)
	default:
		klog.FromContext(ctx).Info("Reading from the API server again", "resource", o.kind)
	}
}
