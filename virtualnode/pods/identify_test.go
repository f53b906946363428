package pods

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestAClusterIsKnownInTheEndWhateverItAnswersFirst(t *testing.T) {
	remote := &there{refusals: []int{http.StatusBadRequest, http.StatusGone, http.StatusUnprocessableEntity}}
	r := newRunner(t, remote)
	controller, err := New(Config{Home: fake.NewClientset(), Pods: informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Pods().Informer()})
	require.NoError(t, err)
	r.Controller = controller
	r.identify(t.Context())
	assert.Equal(t, types.UID("west-uid"), r.cluster())
	assert.EqualValues(t, 4, remote.asked.Load())
}
