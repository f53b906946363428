package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhatAnAPIServerHasAgainstASnapshotIsRemembered(t *testing.T) {
	w := &activeMove{}
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "volumesnapshots"}, "s", assert.AnError)
	require.NoError(t, w.noteRefusal(1, quota))
	assert.Contains(t, w.claim(1).refused, "forbidden")
	require.Error(t, w.noteRefusal(1, apierrors.NewInternalError(assert.AnError)), "that is tried again")
	require.NoError(t, w.noteRefusal(2, apierrors.NewAlreadyExists(schema.GroupResource{}, "s")))
	assert.Empty(t, w.claim(2).refused)
}
