package confirm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
)

func west(status metav1.ConditionStatus) *v1alpha1.RemoteCluster {
	remote := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "w"}}
	if status != "" {
		remote.Status.Conditions = []metav1.Condition{{Type: v1alpha1.HomeInForce, Status: status, Message: "since then"}}
	}
	return remote
}

func TestJudge(t *testing.T) {
	doubt := &homeepoch.Record{RemoteCluster: "w", Doubt: &homeepoch.Doubt{ID: "d"}}
	for name, test := range map[string]struct {
		remote *v1alpha1.RemoteCluster
		record *homeepoch.Record
		says   string
	}{
		"in doubt": {remote: west(metav1.ConditionFalse), record: doubt},
		"it acts there": {
			remote: west(metav1.ConditionTrue), record: &homeepoch.Record{RemoteCluster: "w"}, says: "acts in \"west\" already"},
		"nobody has looked": {remote: west(""), says: "see whether it runs"},
		"it cannot be read": {
			remote: west(metav1.ConditionFalse), record: &homeepoch.Record{RemoteCluster: "w"}, says: "since then"},
		"the doubt is of an older RemoteCluster": {
			remote: west(metav1.ConditionUnknown), record: &homeepoch.Record{RemoteCluster: "v", Doubt: &homeepoch.Doubt{}},
			says: "in no doubt"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Judge(test.remote, test.record)
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.says)
			assert.Equal(t, cli.Refused, cli.ExitCodeOf(err))
		})
	}
}

func TestWhatIsKnownIsSaid(t *testing.T) {
	text := Known(west(metav1.ConditionFalse), &homeepoch.Record{
		Next: homeepoch.Mark{Epoch: 2, Renewal: 7, Nonce: "a"}, Doubt: &homeepoch.Doubt{
			Reason: homeepoch.RemoteAhead, Found: homeepoch.Mark{Epoch: 3, Renewal: 1, Nonce: "b"},
			Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}})
	for _, part := range []string{"epoch 3, renewal 1", "epoch 2, renewal 7", "2026-01-02T03:04:05Z", "RemoteAhead", "since then"} {
		assert.Contains(t, text, part)
	}
}
