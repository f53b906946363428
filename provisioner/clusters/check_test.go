package clusters

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFailedSortsErrors(t *testing.T) {
	resource := schema.GroupResource{Resource: "namespaces"}
	request := func(err error) error { return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/version", Err: err} }
	for name, test := range map[string]struct {
		err          error
		unauthorized string
		unreachable  string
	}{
		"credentials that are not accepted": {err: apierrors.NewUnauthorized("no"), unauthorized: "renew them"},
		"a missing right is named":          {err: apierrors.NewForbidden(resource, "kube-system", errors.New("no")), unauthorized: "may not look"},
		"nobody listens": {
			err:         request(&net.OpError{Op: "dial", Err: &net.AddrError{Err: "x"}}),
			unreachable: "does not answer"},
		"the cause is told without the address": {
			err:         request(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}),
			unreachable: "connection refused"},
		"no answer in time":                       {err: request(context.DeadlineExceeded), unreachable: "no answer within 5s"},
		"an answer that is none of an API server": {err: fmt.Errorf("decode: %w", errors.New("invalid character '<'")), unreachable: "invalid character"},
		"an API server that is in trouble":        {err: apierrors.NewInternalError(errors.New("etcd")), unreachable: "etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			found := failed(test.err, "look")
			assert.Equal(t, test.unauthorized == "", found.unauthorized == "")
			assert.Contains(t, found.unauthorized, test.unauthorized)
			assert.Equal(t, test.unreachable == "", found.unreachable == "")
			assert.Contains(t, found.unreachable, test.unreachable)
			assert.NotContains(t, found.unreachable, "10.0.0.1")
		})
	}
}
