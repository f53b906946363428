package rebind

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestOnlyANamespaceOfAnotherHomeNamespaceIsBoundAgain(t *testing.T) {
	request := func(uid types.UID) *remotev1alpha1.NamespaceRequest {
		return &remotev1alpha1.NamespaceRequest{Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "shop", HomeNamespaceUID: uid}}
	}
	going := request("u2")
	going.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		foreign  bool
		recorded string
		request  *remotev1alpha1.NamespaceRequest
		says     string
	}{
		"another one asks":              {recorded: "u1", request: request("u2")},
		"the same one asks":             {recorded: "u1", request: request("u1"), says: "there is nothing to bind"},
		"one of an earlier version":     {recorded: "u1", request: request(""), says: "there is nothing to bind"},
		"nothing was recorded":          {request: request("u2"), says: "there is nothing to bind"},
		"nobody asks":                   {recorded: "u1", says: "restore it at home first"},
		"the request is going":          {recorded: "u1", request: going, says: "restore it at home first"},
		"it is not of any home cluster": {foreign: true, recorded: "u1", request: request("u2"), says: "was not made for a home cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.HomeID: "h1"},
				Annotations: map[string]string{keys.MadeFor: "h1/shop", keys.HomeNamespaceUID: test.recorded}}}
			if test.foreign {
				namespace.Labels = nil
			}
			err := Judge(namespace, test.request)
			if test.says == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.says)
			assert.Equal(t, cli.Refused, cli.ExitCodeOf(err))
		})
	}
}
