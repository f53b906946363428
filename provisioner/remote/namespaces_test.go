package remote

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestClaimsWithoutDataAreCountedInPages uses a server that never returns more items than
// the limit of the request.
func TestClaimsWithoutDataAreCountedInPages(t *testing.T) {
	pages := map[string]string{"": "second", "second": "third", "third": ""}
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		token := query.Get("continue")
		asked = append(asked, query.Get("limit")+token)
		w.Header().Set("Content-Type", "application/json")
		assert.Equal(t, keys.HomeID+"=here", query.Get("labelSelector"))
		_, _ = fmt.Fprintf(w, `{"kind":"PersistentVolumeClaimList","apiVersion":"v1","metadata":{"continue":%q},"items":[
			{"metadata":{"name":"a%s","annotations":{%q:"true"}}},{"metadata":{"name":"b%s"}}]}`, pages[token], token, keys.Unpublished, token)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	n, err := (&connection{client: client, homeID: "here"}).unpublishedIn(t.Context(), "shop")
	require.NoError(t, err)
	assert.Equal(t, 3, n, "one on each page")
	assert.Equal(t, []string{"250", "250second", "250third"}, asked)
}

func request(conditions ...metav1.Condition) *remotev1alpha1.NamespaceRequest {
	return &remotev1alpha1.NamespaceRequest{
		Spec:   remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "shop"},
		Status: remotev1alpha1.NamespaceRequestStatus{Conditions: conditions},
	}
}

// requestOf is a request for the home namespace of a UID, which the namespace is recorded to be for.
func requestOf(uid, recorded types.UID, conditions ...metav1.Condition) *remotev1alpha1.NamespaceRequest {
	r := request(conditions...)
	r.Spec.HomeNamespaceUID, r.Status.HomeNamespaceUID = uid, recorded
	return r
}

func going() *remotev1alpha1.NamespaceRequest {
	r := request()
	r.DeletionTimestamp = ptr.To(metav1.Now())
	return r
}

func readyCondition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: remotev1alpha1.Ready, Status: status, Reason: reason, Message: message}
}

func TestNext(t *testing.T) {
	for name, test := range map[string]struct {
		given namespaceObservation
		want  namespaceVerb
		again bool
	}{
		"an open namespace is asked for": {given: namespaceObservation{exists: true, open: true, asking: true},
			want: ask},
		"… once": {given: namespaceObservation{exists: true, open: true, asking: true,
			request: request()}},
		"the UID of its home namespace is written into the request": {given: namespaceObservation{exists: true, open: true, asking: true,
			request: request(), uid: "u1"}, want: identify},
		"… and not again": {given: namespaceObservation{exists: true, open: true, asking: true, request: requestOf("u1", ""), uid: "u1"}},
		"… even if the remote cluster drops it": {given: namespaceObservation{exists: true, open: true, asking: true, request: request(),
			uid: "u1", told: true}},
		"… again when the home namespace was made again": {given: namespaceObservation{exists: true, open: true, asking: true,
			request: requestOf("u1", "u1"), uid: "u2"}, want: identify},
		"… not where it is gone, and only its data is left": {given: namespaceObservation{asking: true, used: true,
			request: requestOf("u1", "u1")}, again: true},
		"… not while the earlier request goes": {given: namespaceObservation{exists: true, open: true, asking: true,
			request: going()}},
		"… not where nobody makes namespaces": {given: namespaceObservation{exists: true, open: true}},
		"… not from a cluster that is being left": {given: namespaceObservation{exists: true, open: true, asking: true,
			leaving: true}},
		"a closed namespace is not asked for": {given: namespaceObservation{exists: true, asking: true}},
		"a name that nobody can make is not asked for": {given: namespaceObservation{name: strings.Repeat("a", 64), exists: true,
			open: true, asking: true}},
		"data there needs rights, closed or not": {given: namespaceObservation{exists: true, asking: true, used: true},
			want: ask},
		"… even when the home namespace is gone": {given: namespaceObservation{asking: true, used: true}, want: ask},
		"… even when the cluster is being left": {given: namespaceObservation{exists: true, asking: true, used: true,
			leaving: true}, want: ask},
		"data there keeps the request, and is looked for again": {given: namespaceObservation{exists: true, asking: true, used: true,
			request: request(), unneeded: time.Hour}, again: true},
		"a closed namespace lingers": {given: namespaceObservation{exists: true, asking: true, request: request()},
			again: true},
		"… and is given back": {given: namespaceObservation{exists: true, asking: true, request: request(),
			unneeded: linger}, want: retire},
		"… at once when the cluster is being left": {given: namespaceObservation{exists: true, open: true, asking: true,
			request: request(), leaving: true}, want: retire},
		"what is going already is left alone": {given: namespaceObservation{exists: true, asking: true, request: going(),
			unneeded: linger}},
		"a namespace whose home namespace is gone is forgotten": {given: namespaceObservation{recorded: true, unneeded: linger}, want: retire},
		"… and not while there may be data": {given: namespaceObservation{recorded: true, used: true, unneeded: linger},
			again: true},
		"a closed namespace stays recorded: it may open again":   {given: namespaceObservation{exists: true, recorded: true, unneeded: linger}},
		"a namespace that nobody asked for or used is no matter": {given: namespaceObservation{exists: true, unneeded: linger}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.given.name == "" {
				test.given.name = "shop"
			}
			did, after := next(test.given)
			assert.Equal(t, test.want, did)
			assert.Equal(t, test.again, after > 0)
		})
	}
}

func TestStateOf(t *testing.T) {
	other := request(readyCondition(metav1.ConditionTrue, "Ready", ""))
	other.Spec.HomeNamespace = "bank"
	long := strings.Repeat("a", 64)
	for name, test := range map[string]struct {
		request *remotev1alpha1.NamespaceRequest
		name    string
		uid     types.UID
		want    namespaceState
	}{
		"no request": {want: namespaceState{Asked: true}},
		"no answer":  {request: request(), want: namespaceState{Asked: true}},
		"an answer that is none yet": {request: request(readyCondition(metav1.ConditionUnknown, "Making", "")),
			want: namespaceState{Asked: true}},
		"given": {request: request(readyCondition(metav1.ConditionTrue, "Ready", "")),
			want: namespaceState{Asked: true, Given: true, Rights: true}},
		"given, by an agent that records no UID": {request: request(readyCondition(metav1.ConditionTrue, "Ready", "")), uid: "u1",
			want: namespaceState{Asked: true, Given: true, Rights: true}},
		"given to this home namespace": {request: requestOf("u1", "u1", readyCondition(metav1.ConditionTrue, "Ready", "")), uid: "u1",
			want: namespaceState{Asked: true, Given: true, Rights: true}},
		"given to one that is gone": {request: requestOf("u1", "u1", readyCondition(metav1.ConditionTrue, "Ready", "")),
			want: namespaceState{Asked: true, Given: true, Rights: true}},
		"given to an earlier one, and not looked at again yet": {uid: "u2",
			request: requestOf("u2", "u1", readyCondition(metav1.ConditionTrue, "Ready", "")),
			want: namespaceState{Asked: true, Rights: true,
				Message: "namespace shop there is of an earlier namespace of this name, and the remote agent has not answered yet"}},
		"of an earlier one": {uid: "u2", request: requestOf("u2", "u1", readyCondition(metav1.ConditionFalse, "AnotherNamespace", "no")),
			want: namespaceState{Asked: true, Rights: true, Reason: "AnotherNamespace", Message: "no"}},
		"refused": {request: request(readyCondition(metav1.ConditionFalse, "NotAllowed", "no")),
			want: namespaceState{Asked: true, Reason: "NotAllowed", Message: "no"}},
		"not yet, but soon": {request: request(readyCondition(metav1.ConditionFalse, "Terminating", "it goes")),
			want: namespaceState{Asked: true, Message: "it goes"}},
		"being taken back": {request: going(), want: namespaceState{Asked: true}},
		"made for another namespace": {request: other, want: namespaceState{Asked: true, Reason: "OtherRequest",
			Message: "NamespaceRequest shop there was made for another namespace: delete it"}},
		"a name that is too long": {name: long, want: namespaceState{Asked: true, Reason: "NameTooLong",
			Message: "its name there, " + long + ", would have more than 63 characters: use a shorter name at home"}},
		"what the other cluster says is cleaned": {request: request(readyCondition(metav1.ConditionFalse, "No", "a\nb\x1b[31m"+
			strings.Repeat("é", 300))),
			want: namespaceState{Asked: true, Reason: "No", Message: "a b [31m" + strings.Repeat("é", 124)}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.name == "" {
				test.name = "shop"
			}
			assert.Equal(t, test.want, stateOf(test.request, test.name, "shop", test.uid))
		})
	}
}

func TestHomeOf(t *testing.T) {
	for name, test := range map[string]struct {
		strategy  v1alpha1.NamespaceStrategy
		namespace string
		home      string
		ok        bool
	}{
		"the same name":        {strategy: v1alpha1.SameName, namespace: "shop", home: "shop", ok: true},
		"no strategy":          {namespace: "shop-h1", home: "shop-h1", ok: true},
		"our suffix":           {strategy: v1alpha1.Suffixed, namespace: "shop-h1", home: "shop", ok: true},
		"another suffix":       {strategy: v1alpha1.Suffixed, namespace: "shop-h2"},
		"nothing but a suffix": {strategy: v1alpha1.Suffixed, namespace: "-h1"},
	} {
		t.Run(name, func(t *testing.T) {
			home, ok := homeOf(test.strategy, test.namespace, "h1")
			assert.Equal(t, test.ok, ok)
			if ok {
				assert.Equal(t, test.home, home)
			}
		})
	}
}
