package pods

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAbsentMeansJustThisObject(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                           {},
		"the object does not exist":          {err: apierrors.NewNotFound(pods, "web"), want: true},
		"the same in other words":            {err: fmt.Errorf("get: %w", apierrors.NewNotFound(pods, "web")), want: true},
		"another object does not exist":      {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")},
		"the kind of object does not exist":  {err: apierrors.NewGenericServerResponse(404, "GET", pods, "", "the server could not find the requested resource", 0, false)},
		"something else answers for the API": {err: apierrors.NewGenericServerResponse(404, "GET", pods, "web", "404 page not found", 0, true)},
		"no rights":                          {err: apierrors.NewForbidden(pods, "web", errors.New("no"))},
		"no answer":                          {err: errors.New("connection refused")},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, absent(test.err, "web")) })
	}
}
