package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

func homeCluster(conditions ...metav1.Condition) *remotev1alpha1.HomeCluster {
	return &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "h1"},
		Status: remotev1alpha1.HomeClusterStatus{Conditions: conditions}}
}

func TestWhatIsKnownOfAClusterBecomesAState(t *testing.T) {
	isReady := metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue}
	away := metav1.Condition{Type: remotev1alpha1.Connected, Status: metav1.ConditionFalse}
	leaving := homeCluster(isReady)
	leaving.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		health  Health
		unknown bool
		ready   bool
		reason  string
		says    string
	}{
		"nothing yet":              {unknown: true},
		"one failure at the start": {health: Health{Failures: 1, Reason: "RemoteSilent", Problem: "no"}, unknown: true},
		"silent from the start": {health: Health{Failures: 3, Reason: "RemoteSilent", Problem: "no answer"}, reason: "RemoteSilent",
			says: "no answer"},
		"all is well": {health: Health{Answered: true, Home: homeCluster(isReady)}, ready: true, reason: "RemoteReady",
			says: "pods can run in cluster west"},
		"one missed answer": {health: Health{Answered: true, Failures: 2, Home: homeCluster(isReady)}, ready: true,
			reason: "RemoteReady", says: "pods can run"},
		"an outage": {health: Health{Answered: true, Failures: 3, Reason: "RemoteSilent", Problem: "gone",
			Home: homeCluster(isReady)}, reason: "RemoteSilent", says: "gone"},
		"no HomeCluster": {health: Health{Answered: true, Missing: "none"}, reason: "NoHomeCluster", says: "none"},
		"an agent that has not answered yet": {health: Health{Answered: true, Home: homeCluster()}, reason: "AgentSilent",
			says: "check that it runs"},
		"a HomeCluster that is not ready": {health: Health{Answered: true, Home: homeCluster(metav1.Condition{
			Type: remotev1alpha1.Ready, Status: metav1.ConditionFalse, Message: "the namespace is taken"})}, reason: "HomeClusterNotReady",
			says: "the namespace is taken"},
		"a HomeCluster that is withdrawn": {health: Health{Answered: true, Home: leaving}, reason: "Leaving", says: "withdrawn"},
		"a heartbeat that is new": {health: Health{Answered: true, Beats: missedBeats - 1, Home: homeCluster(isReady, away)}, ready: true,
			reason: "RemoteReady"},
		"a heartbeat that nobody hears": {health: Health{Answered: true, Beats: missedBeats, Home: homeCluster(isReady, away)},
			reason: "AgentSilent", says: "does not see this cluster's heartbeat"},
	} {
		t.Run(name, func(t *testing.T) {
			state, known := test.health.State("west")
			assert.Equal(t, !test.unknown, known)
			assert.Equal(t, test.ready, state.Ready)
			assert.Equal(t, test.reason, state.Reason)
			assert.Contains(t, state.Message, test.says)
		})
	}
}

func TestOnlyAClusterThatAnswersIsAlive(t *testing.T) {
	assert.False(t, Health{}.Alive(), "not known yet")
	assert.True(t, Health{Answered: true, Failures: 2}.Alive())
	assert.False(t, Health{Answered: true, Failures: 3}.Alive())
}

func TestErrorsOfProbesAreSentences(t *testing.T) {
	resource := schema.GroupResource{Group: "remote.lodestone.dev", Resource: "homeclusters"}
	reason, sentence := failure("west", apierrors.NewUnauthorized("expired"))
	assert.Equal(t, "NotAuthorized", reason)
	assert.Contains(t, sentence, "renew them in the Secret")
	reason, sentence = failure("west", errors.New("connection refused"))
	assert.Equal(t, "RemoteSilent", reason)
	assert.Contains(t, sentence, "connection refused")

	assert.Contains(t, missing("west", "h1", apierrors.NewNotFound(resource, "h1")), "has no HomeCluster h1")
	assert.Contains(t, missing("west", "h1", apierrors.NewForbidden(resource, "h1", nil)), "may not read HomeCluster h1")
	assert.Empty(t, missing("west", "h1", errors.New("connection refused")))
	assert.Empty(t, missing("west", "h1", nil))
}

func TestSentencesOfRemoteClustersAreBounded(t *testing.T) {
	assert.LessOrEqual(t, len(clip(strings.Repeat("ü", 1000))), 520)
	assert.Equal(t, "short", clip("short"))
}
