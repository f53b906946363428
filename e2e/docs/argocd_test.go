package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

const root = "../.."

// scripts returns the scripts of the example for Argo CD, by group and kind.
func scripts(t *testing.T) map[string]string {
	data, err := os.ReadFile(filepath.Join(root, "deploy", "examples", "argocd-health.yaml"))
	require.NoError(t, err)
	var config corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict(data, &config))
	found := map[string]string{}
	for key, script := range config.Data {
		kind, ok := strings.CutPrefix(key, "resource.customizations.health.")
		require.True(t, ok, key)
		found[kind] = script
	}
	return found
}

// health runs a script as Argo CD does: with the base and table libraries only, and the object as obj.
func health(t *testing.T, script string, object any) (status, message string) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		require.NoError(t, state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	state.SetGlobal("obj", luaValue(state, content))
	require.NoError(t, state.DoString(script))
	answer, ok := state.Get(-1).(*lua.LTable)
	require.True(t, ok, "the script returns %v", state.Get(-1))
	text, ok := answer.RawGetString("message").(lua.LString)
	require.True(t, ok, "the message is text")
	return lua.LVAsString(answer.RawGetString("status")), string(text)
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, one := range v {
			table.RawSetString(key, luaValue(state, one))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, one := range v {
			table.Append(luaValue(state, one))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	default:
		return lua.LNil
	}
}

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "It is so."}
}

func TestArgoCDTellsHowObjectsAre(t *testing.T) {
	const (
		yes, no, unknown                         = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
		healthy, progressing, degraded, suspends = "Healthy", "Progressing", "Degraded", "Suspended"
	)
	meta := metav1.ObjectMeta{Name: "one", Generation: 2}
	remote := func(observed int64, conditions ...metav1.Condition) any {
		status := v1alpha1.RemoteClusterStatus{ObservedGeneration: observed, Conditions: conditions}
		return &v1alpha1.RemoteCluster{ObjectMeta: meta, Status: status}
	}
	move := func(observed int64, phase v1alpha1.MovePhase, conditions ...metav1.Condition) any {
		return &v1alpha1.VolumeMove{ObjectMeta: meta, Status: v1alpha1.VolumeMoveStatus{
			ObservedGeneration: observed, Phase: phase, Message: "it is so", Conditions: conditions}}
	}
	replica := func(observed int64, conditions ...metav1.Condition) any {
		return &v1alpha1.VolumeReplica{ObjectMeta: meta, Status: v1alpha1.VolumeReplicaStatus{ObservedGeneration: observed,
			Conditions: conditions}}
	}
	home := func(observed int64, conditions ...metav1.Condition) any {
		status := remotev1alpha1.HomeClusterStatus{ObservedGeneration: observed, Conditions: conditions}
		return &remotev1alpha1.HomeCluster{ObjectMeta: meta, Status: status}
	}
	request := func(observed int64, conditions ...metav1.Condition) any {
		status := remotev1alpha1.NamespaceRequestStatus{ObservedGeneration: observed, Conditions: conditions}
		return &remotev1alpha1.NamespaceRequest{ObjectMeta: meta, Status: status}
	}
	pod := func(start bool, phase remotev1alpha1.ShadowPodPhase, message string) any {
		return &remotev1alpha1.ShadowPod{ObjectMeta: meta, Spec: remotev1alpha1.ShadowPodSpec{Start: start},
			Status: remotev1alpha1.ShadowPodStatus{Phase: phase, Message: message}}
	}
	ready, silent, notReady := condition("Ready", yes, "Ready"), condition("Connected", no, "Silent"), condition("VirtualNode", no, "NotReady")
	connected, listening := condition("Connected", yes, "Heard"), condition("Connected", unknown, "Listening")
	accepted, refused := condition("Accepted", yes, "Accepted"), condition("Accepted", no, "Refused")
	already := condition("Accepted", no, v1alpha1.MoveAlreadyThere)
	const ended = "The pod ended by itself with phase "
	const (
		remoteCluster = "lodestone.dev_RemoteCluster"
		volumeMove    = "lodestone.dev_VolumeMove"
		volumeReplica = "lodestone.dev_VolumeReplica"
		homeCluster   = "remote.lodestone.dev_HomeCluster"
		namespace     = "remote.lodestone.dev_NamespaceRequest"
		shadowPod     = "remote.lodestone.dev_ShadowPod"
	)
	all := scripts(t)
	for name, test := range map[string]struct {
		kind   string
		object any
		status string
		says   string
	}{
		"a cluster that nobody has seen":   {remoteCluster, remote(0), progressing, "not seen"},
		"one whose spec was changed":       {remoteCluster, remote(1, ready), progressing, "not seen"},
		"one without a condition":          {remoteCluster, remote(2), progressing, "first time"},
		"one that takes volumes":           {remoteCluster, remote(2, notReady, ready), healthy, "so"},
		"one that is being read":           {remoteCluster, remote(2, condition("Ready", no, "Syncing")), progressing, "so"},
		"one that does not answer":         {remoteCluster, remote(2, condition("Ready", no, "NotReachable")), degraded, "NotReachable: "},
		"a move that nobody has seen":      {volumeMove, move(0, ""), progressing, "not seen"},
		"one that copies":                  {volumeMove, move(2, v1alpha1.MovePreCopy, accepted), progressing, "so"},
		"one that goes back":               {volumeMove, move(2, v1alpha1.MoveRollBack), progressing, "so"},
		"one that is to be aborted":        {volumeMove, move(1, v1alpha1.MovePreCopy), progressing, "not seen"},
		"one that keeps its source":        {volumeMove, move(2, v1alpha1.MoveRetain), healthy, "so"},
		"one that is done":                 {volumeMove, move(2, v1alpha1.MoveDone), healthy, "so"},
		"a dry run that found nothing":     {volumeMove, move(2, v1alpha1.MoveChecked), healthy, "so"},
		"one that was aborted":             {volumeMove, move(2, v1alpha1.MoveAborted), suspends, "so"},
		"one that failed":                  {volumeMove, move(2, v1alpha1.MoveFailed, refused), degraded, "so"},
		"one with nothing to do":           {volumeMove, move(2, v1alpha1.MoveFailed, already), healthy, "so"},
		"a replica that nobody has seen":   {volumeReplica, replica(1), progressing, "not seen"},
		"one whose first copy is made":     {volumeReplica, replica(2, condition("Healthy", no, "Seeding")), progressing, "so"},
		"one that is sealed":               {volumeReplica, replica(2, condition("Healthy", yes, "Sealed")), healthy, "so"},
		"one that is paused":               {volumeReplica, replica(2, condition("Healthy", no, "Paused")), suspends, "so"},
		"one whose points fail":            {volumeReplica, replica(2, condition("Healthy", no, "PointFailed")), degraded, "so"},
		"a home that nobody has seen":      {homeCluster, home(0), progressing, "not seen"},
		"one that is connected":            {homeCluster, home(2, connected, ready), healthy, "so"},
		"one that is silent":               {homeCluster, home(2, silent, ready), suspends, "so"},
		"one not heard yet":                {homeCluster, home(2, listening, ready), progressing, "listens"},
		"one that is not served":           {homeCluster, home(2, connected, condition("Ready", no, "InvalidUser")), degraded, "InvalidUser"},
		"a namespace that was given":       {namespace, request(2, condition("Ready", yes, "Given")), healthy, "so"},
		"a request that nobody has seen":   {namespace, request(0), progressing, "not seen"},
		"one that is being made":           {namespace, request(2, condition("Ready", no, "Preparing")), progressing, "so"},
		"one that is not allowed":          {namespace, request(2, condition("Ready", no, "NotAllowed")), degraded, "so"},
		"a pod that is not to be made yet": {shadowPod, pod(false, "", ""), suspends, "not asked"},
		"a pod that is being made":         {shadowPod, pod(true, remotev1alpha1.ShadowPodCreating, ""), progressing, ""},
		"one that is refused":              {shadowPod, pod(true, remotev1alpha1.ShadowPodPending, "no"), degraded, "no"},
		"one that was made":                {shadowPod, pod(true, remotev1alpha1.ShadowPodCreated, ""), healthy, ""},
		"one that did its work":            {shadowPod, pod(true, remotev1alpha1.ShadowPodCreated, ended+"Succeeded."), healthy, "Succeeded"},
		"one that did not":                 {shadowPod, pod(true, remotev1alpha1.ShadowPodCreated, ended+"Failed."), degraded, "Failed"},
		"one that is gone":                 {shadowPod, pod(true, remotev1alpha1.ShadowPodLost, "gone"), degraded, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			script, ok := all[test.kind]
			require.True(t, ok, "there is no script for %s", test.kind)
			status, message := health(t, script, test.object)
			assert.Equal(t, test.status, status)
			assert.Contains(t, message, test.says)
		})
	}
}

func TestArgoCDKnowsEachKind(t *testing.T) {
	var kinds []string
	for _, pattern := range []string{"deploy/base/crds/*_*.yaml", "deploy/remote/crds/*_*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var crd struct {
				Spec struct {
					Group string
					Names struct{ Kind string }
				}
			}
			require.NoError(t, yaml.Unmarshal(data, &crd))
			kinds = append(kinds, crd.Spec.Group+"_"+crd.Spec.Names.Kind)
		}
	}
	require.Len(t, kinds, 6)
	var known []string
	for kind := range scripts(t) {
		known = append(known, kind)
	}
	assert.ElementsMatch(t, kinds, known)
}
