package moves

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// plugin runs the plugin and returns its exit code and what it wrote.
func plugin(t *testing.T, args ...string) (code int, out, said string) {
	t.Helper()
	kubeconfig, err := bed.Contexts()
	require.NoError(t, err)
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	code = cmd.Run(t.Context(), streams, append(args, "--kubeconfig", kubeconfig)...)
	t.Logf("$ kubectl lodestone %v\n%s%s(exit code %d)", args, stderr, stdout, code)
	return code, stdout.String(), stderr.String()
}

func TestThePluginMovesAVolumeAndSaysHowThatGoes(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data")

	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west")
	require.Zero(t, code, said)
	assert.Contains(t, out, "data now in cluster west; pods could not use it for ")
	assert.Contains(t, out, "the copy at the source is kept for 1h0m0s")
	assert.Contains(t, said, "data: Quiesce")
	counts(t, folder(t, namespace, "data"), 20)

	code, out, said = plugin(t, "move", "data", "-n", namespace, "--target-cluster", keys.Home)
	assert.Equal(t, 3, code, "its source is still kept: %s%s", out, said)
	assert.Contains(t, said, "is being moved by VolumeMove")

	code, out, _ = plugin(t, "move", "status", "-n", namespace)
	require.Zero(t, code)
	assert.Contains(t, out, "NAME")

	list, err := moves(t, namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var done *v1alpha1.VolumeMove
	for i := range list.Items {
		if list.Items[i].Status.Phase != v1alpha1.MoveFailed {
			done = &list.Items[i]
		}
	}
	require.NotNil(t, done)
	code, _, said = plugin(t, "move", "abort", done.Name, "-n", namespace)
	assert.Equal(t, 3, code, "it is committed: %s", said)
	code, _, said = plugin(t, "move", "finalize", done.Name, "-n", namespace)
	require.Zero(t, code, said)
	reaches(t, done, v1alpha1.MoveDone)
}

func TestTheMoveGoesOnWhenThePluginIsStopped(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data")
	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west", "--detach", "--keep-source-for", "1s")
	require.Zero(t, code, said)
	assert.Contains(t, out, "volumemove/data-")
	list, err := moves(t, namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	done := reaches(t, &list.Items[0], v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	assert.Equal(t, time.Second, done.Spec.KeepSourceFor.Duration)
}

func TestAMoveThatIsForbiddenChangesNothing(t *testing.T) {
	namespace := space(t)
	makes(t, fabric.NewClaim(namespace, "data", fabric.Class), fabric.AtHome(application(namespace, "data", "data")))
	for name, row := range map[string]struct {
		args []string
		says string
	}{
		"where it is":                 {[]string{"data", "--target-cluster", keys.Home}, "is there already"},
		"a cluster that is not there": {[]string{"data", "--target-cluster", "nowhere"}, "nowhere"},
		"a node that is not there":    {[]string{"data", "--target-node", "nowhere"}, `there is no node "nowhere"`},
	} {
		code, _, said := plugin(t, append([]string{"move", "-n", namespace}, row.args...)...)
		assert.Equal(t, 3, code, name)
		assert.Contains(t, said, row.says, name)
	}
	code, _, said := plugin(t, "move", "absent", "-n", namespace, "--target-cluster", "west")
	assert.Equal(t, 1, code)
	assert.Contains(t, said, `there is no claim "absent"`)
	folder := folder(t, namespace, "data")
	counts(t, folder, counted(t, folder)+10)
}
