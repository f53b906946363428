package reflector

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var resource = corev1.Resource("configmaps")

// apiServer holds one ConfigMap as an API server does.
type apiServer struct {
	object  *corev1.ConfigMap
	version int
	lives   int
	before  func() // called once, before the next write
}

func (a *apiServer) interfere() {
	if f := a.before; f != nil {
		a.before = nil
		f()
	}
}

func (a *apiServer) store(object *corev1.ConfigMap) *corev1.ConfigMap {
	a.version++
	a.object = object.DeepCopy()
	a.object.ResourceVersion = string(rune('0' + a.version))
	return a.object.DeepCopy()
}

func (a *apiServer) Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error) {
	if a.object == nil {
		return nil, apierrors.NewNotFound(resource, ledgerName)
	}
	return a.object.DeepCopy(), nil
}

func (a *apiServer) Create(_ context.Context, object *corev1.ConfigMap, _ metav1.CreateOptions) (*corev1.ConfigMap, error) {
	a.interfere()
	if a.object != nil {
		return nil, apierrors.NewAlreadyExists(resource, ledgerName)
	}
	a.lives++
	object = object.DeepCopy()
	object.UID = types.UID(rune('a' + a.lives - 1))
	return a.store(object), nil
}

func (a *apiServer) Update(_ context.Context, object *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	a.interfere()
	switch {
	case a.object == nil:
		return nil, apierrors.NewNotFound(resource, ledgerName)
	case a.object.ResourceVersion != object.ResourceVersion:
		return nil, apierrors.NewConflict(resource, ledgerName, nil)
	}
	return a.store(object), nil
}

func (a *apiServer) Delete(_ context.Context, _ string, options metav1.DeleteOptions) error {
	a.interfere()
	switch {
	case a.object == nil:
		return apierrors.NewNotFound(resource, ledgerName)
	case a.object.UID != *options.Preconditions.UID || a.object.ResourceVersion != *options.Preconditions.ResourceVersion:
		return apierrors.NewConflict(resource, ledgerName, nil)
	}
	a.object = nil
	return nil
}

func (a *apiServer) data() map[string]string {
	if a.object == nil {
		return nil
	}
	return a.object.Data
}

func TestLedgerLivesWhileItNamesASecret(t *testing.T) {
	server := &apiServer{}
	l := newLedger(server, "h1")
	require.NoError(t, l.record(t.Context(), "password", "u1"))
	require.NoError(t, l.record(t.Context(), "key", "u2"))
	assert.Equal(t, map[string]string{"password": "u1", "key": "u2"}, server.data())
	assert.Equal(t, map[string]string{keys.HomeID: "h1"}, server.object.Labels)
	assert.Equal(t, []string{"key", "password"}, l.names())
	home, uid := l.home("key")
	assert.Equal(t, types.UID("u2"), home)
	assert.Equal(t, types.UID("a"), uid)

	require.NoError(t, l.erase(t.Context(), "key", "another"))
	assert.Len(t, server.data(), 2, "what is recorded for another home object stays")
	require.NoError(t, l.erase(t.Context(), "key", "u2"))
	require.NoError(t, l.erase(t.Context(), "password", "u1"))
	assert.Nil(t, server.object)
	require.NoError(t, l.record(t.Context(), "password", "u3"))
	_, uid = l.home("password")
	assert.Equal(t, types.UID("b"), uid, "a new one is another object")
}

func TestLedgerTakesInWhatOthersWrote(t *testing.T) {
	ours := map[string]string{keys.HomeID: "h1"}
	for name, test := range map[string]struct {
		before func(*apiServer)
		want   map[string]string
	}{
		"changed meanwhile": {
			before: func(a *apiServer) { a.object.Data["other"] = "u9"; a.store(a.object) },
			want:   map[string]string{"first": "u1", "other": "u9", "password": "u2"},
		},
		"deleted meanwhile": {before: func(a *apiServer) { a.object = nil }, want: map[string]string{"password": "u2"}},
		"deleted and made again": {
			before: func(a *apiServer) {
				a.store(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "z", Labels: ours}, Data: map[string]string{"other": "u9"}})
			},
			want: map[string]string{"other": "u9", "password": "u2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := &apiServer{}
			l := newLedger(server, "h1")
			require.NoError(t, l.record(t.Context(), "first", "u1"))
			server.before = func() { test.before(server) }
			require.NoError(t, l.record(t.Context(), "password", "u2"))
			assert.Equal(t, test.want, server.data())
		})
	}
}

func TestLedgerIsNotDeletedWithWhatOthersWrote(t *testing.T) {
	server := &apiServer{}
	l := newLedger(server, "h1")
	require.NoError(t, l.record(t.Context(), "password", "u1"))
	server.before = func() { server.object.Data["other"] = "u9"; server.store(server.object) }
	require.NoError(t, l.erase(t.Context(), "password", "u1"))
	assert.Equal(t, map[string]string{"other": "u9"}, server.data())
}

func TestForeignLedgerIsRefused(t *testing.T) {
	server := &apiServer{}
	server.store(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "z"}})
	var refused *refusal
	require.ErrorAs(t, newLedger(server, "h1").record(t.Context(), "password", "u1"), &refused)
	assert.Empty(t, server.data())
}

// noNamespace answers as the API server does for a namespace that is not there.
type noNamespace struct{ apiServer }

func (*noNamespace) Create(context.Context, *corev1.ConfigMap, metav1.CreateOptions) (*corev1.ConfigMap, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
}

func TestLedgerOfAMissingNamespaceIsAnError(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := newLedger(&noNamespace{}, "h1").record(ctx, "password", "u1")
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestLedgerTellsNewsFromEchoes(t *testing.T) {
	at := func(uid types.UID, version, name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}, Data: map[string]string{name: "u1"}}
	}
	l := newLedger(nil, "h1")
	assert.True(t, l.see(at("a", "5", "first"), true), "found at the start")
	l.set(at("a", "9", "second"))
	assert.False(t, l.see(at("a", "7", "late"), true), "older than our own write")
	assert.False(t, l.see(at("a", "9", "second"), true), "our own write")
	assert.Equal(t, []string{"second"}, l.names())
	assert.True(t, l.see(at("a", "11", "theirs"), true), "somebody's write")
	assert.False(t, l.see(at("0", "11", "x"), false), "the end of an earlier one")
	assert.True(t, l.see(at("a", "12", "theirs"), false), "its end")
	assert.Empty(t, l.names())
	assert.False(t, l.see(at("a", "11", "theirs"), true), "it does not come back")
	l.set(at("b", "20", "new"))
	assert.False(t, l.see(at("a", "13", "theirs"), false))
	assert.Equal(t, []string{"new"}, l.names())
}
