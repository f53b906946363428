package move

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

// server is an API server with VolumeMoves, which end when they are first read: as fate says of
// their first claim, else well.
type server struct {
	mu    sync.Mutex
	moves map[string]*v1alpha1.VolumeMove
	fate  map[string]func(*v1alpha1.VolumeMove)
	// breaks answers a GET instead; nil or false: no.
	breaks func(http.ResponseWriter) bool
}

const list = "/apis/lodestone.dev/v1alpha1/namespaces/shop/volumemoves"

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, list), "/")
	move := s.moves[name]
	switch {
	case r.Method == http.MethodPost:
		move = &v1alpha1.VolumeMove{}
		if err := json.NewDecoder(r.Body).Decode(move); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		move.Name = fmt.Sprintf("%s%d", move.GenerateName, len(s.moves))
		move.UID = types.UID("uid-" + move.Name)
		s.moves[move.Name] = move
	case move == nil:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("volumemoves").GroupResource(), name).Status())
		return
	case r.Method == http.MethodDelete:
		delete(s.moves, name)
	case r.Method == http.MethodPatch:
		move.Spec.Action = v1alpha1.ActionAbort
	case s.breaks != nil && s.breaks(w):
		return
	default:
		fate := s.fate[move.Spec.Claims[0]]
		if fate == nil {
			fate = succeeds
		}
		fate(move)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(move)
}

func succeeds(move *v1alpha1.VolumeMove) {
	move.Status.Phase = v1alpha1.MoveRetain
	move.Status.Conditions = []metav1.Condition{is(v1alpha1.MoveCommitted, metav1.ConditionTrue, "")}
}

func fails(move *v1alpha1.VolumeMove) {
	move.Status.Phase, move.Status.Message = v1alpha1.MoveFailed, "the copies differ"
}

func refusedFor(reason, message string) func(*v1alpha1.VolumeMove) {
	return func(move *v1alpha1.VolumeMove) {
		condition := is(v1alpha1.MoveAccepted, metav1.ConditionFalse, message)
		condition.Reason = reason
		move.Status.Phase, move.Status.Conditions = v1alpha1.MoveFailed, []metav1.Condition{condition}
	}
}

// shop is a namespace with StatefulSet db of three replicas, for a user who may edit it and may not
// read volumes.
func shop(t *testing.T, s *server) (*runner, func() (out, said string)) {
	t.Helper()
	s.moves = map[string]*v1alpha1.VolumeMove{}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	moves, err := clients.NewVolumeMoveClient(&rest.Config{Host: web.URL})
	require.NoError(t, err)
	objects := []runtime.Object{&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(int32(3)), VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
	}}}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for i := range 3 {
		objects = append(objects,
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("data-db-%d", i)}})
	}
	client := fake.NewClientset(objects...)
	client.PrependReactor("*", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("persistentvolumes"), "", nil)
	})
	streams, _, out, said := genericiooptions.NewTestIOStreams()
	o := newOptions()
	o.Cluster = "west"
	r := &runner{Options: o, home: &cli.Cluster{Context: "home", Client: client, Moves: moves}, streams: streams, namespace: "shop"}
	return r, func() (string, string) { return out.String(), said.String() }
}

// replicas moves StatefulSet db.
func (r *runner) replicas(t *testing.T) error {
	t.Helper()
	groups, err := r.home.ClaimsOf(t.Context(), r.namespace, cli.Reference{Kind: cli.StatefulSet, Name: "db"}, "move")
	require.NoError(t, err)
	r.statefulSet = true
	return r.run(t.Context(), groups)
}
