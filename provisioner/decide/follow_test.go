package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// attributed has the virtual claim say which attributes its volume has.
func attributed(name string) change {
	return func(o *decide.Observation) { o.Claim.Status.CurrentVolumeAttributesClassName = &name }
}

// having gives a backing claim an attributes class, done also its volume.
func having(name string) func(*decide.Backing) {
	return func(b *decide.Backing) { b.Claim.Spec.VolumeAttributesClassName = &name }
}

func done(name string) func(*decide.Backing) {
	return func(b *decide.Backing) {
		having(name)(b)
		b.Claim.Status.CurrentVolumeAttributesClassName = &name
	}
}

// infeasible has the driver there say that it cannot give the attributes.
func infeasible(name string) func(*decide.Backing) {
	return func(b *decide.Backing) {
		having(name)(b)
		b.Claim.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: name, Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible}
	}
}

// modifyStatus has the virtual claim tell that already.
func modifyStatus(name string) change {
	return func(o *decide.Observation) {
		o.Claim.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: name, Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible}
	}
}

// ungiven are attributes that the cluster refused lately.
func ungiven(name string) change {
	return func(o *decide.Observation) {
		o.Ungiven = &decide.Ungiven{Attributes: name, Reason: "NoAttributesClass", Message: "create it there", Until: now.Add(time.Minute)}
	}
}

// phaseBound has the virtual claim say that it is bound.
func phaseBound(o *decide.Observation) { o.Claim.Status.Phase = corev1.ClaimBound }

func quietly(o *decide.Observation) { o.QuietUntil = now.Add(time.Minute) }

func volumeHaving(name string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.VolumeAttributesClassName = &name }
}

// carrying gives a backing claim an annotation that was carried to it.
func carrying(key string) func(*decide.Backing) {
	return func(b *decide.Backing) {
		b.Claim.Annotations[key] = "a"
		b.Claim.Annotations[keys.Carried] = `{"annotations":["` + key + `"]}`
	}
}

func TestNextKeepsABackingClaimInStep(t *testing.T) {
	bound := boundTo("pvc-u1")
	remote := func(alter ...func(*decide.Backing)) []change {
		return []change{bound, have("west", append([]func(*decide.Backing){pvcBound, published}, alter...)...), volume("west")}
	}
	home := func(alter ...func(*decide.Backing)) []change {
		return []change{bound, have(keys.Home, append([]func(*decide.Backing){pvcBound, published}, alter...)...), volume(keys.Home)}
	}
	with := func(given []change, more ...change) []change { return append(given, more...) }
	team := []change{parameter(keys.Carry, "team"), annotated("team", "a")}
	const idle, modify, carry = decide.Idle, decide.Modify, decide.Carry
	check(t, map[string]row{
		"other attributes are asked of the remote volume": {given: with(remote(having("silver")), attributes("gold")), verb: modify, cluster: "west"},
		"attributes for a volume that had none":           {given: with(remote(), attributes("gold")), verb: modify, cluster: "west"},
		"a remote claim that waits for its pod cannot be changed": {
			given: []change{bound, have("west", published, having("silver")), volume("west"), attributes("gold"), said("west", "", "")}, verb: idle, tell: "BackingPending", after: true},
		"attributes that are on their way are waited for": {given: with(remote(having("gold")), attributes("gold")), verb: idle},
		"attributes that a remote volume has are told":    {given: with(remote(done("gold")), attributes("gold")), verb: decide.Update, cluster: keys.Home},
		"… on the claim too": {
			given: []change{bound, have("west", pvcBound, published, done("gold")), volume("west", volumeHaving("gold")), attributes("gold")}, verb: decide.Update, cluster: keys.Home},
		"attributes that are told": {
			given: []change{bound, have("west", pvcBound, published, done("gold")), volume("west", volumeHaving("gold")), attributes("gold"), attributed("gold")}, verb: idle},
		"attributes that a remote volume cannot have are told": {given: with(remote(infeasible("gold")), attributes("gold"), modifyStatus("gold")), verb: idle, tell: "AttributesFailed"},
		"… after they were written on the claim":               {given: with(remote(infeasible("gold")), phaseBound, attributes("gold")), verb: decide.Reflect, cluster: keys.Home},
		"… and carrying goes on":                               {given: with(with(remote(infeasible("gold")), attributes("gold"), modifyStatus("gold")), team...), verb: carry, cluster: "west", tell: "AttributesFailed"},
		"attributes that were never reached are taken back":    {given: remote(having("gold")), verb: modify, cluster: "west"},
		"refused attributes are told and waited with":          {given: with(remote(), attributes("gold"), ungiven("gold")), verb: idle, tell: "NoAttributesClass", after: true},
		"… but do not keep annotations from being carried":     {given: with(with(remote(), attributes("gold"), ungiven("gold")), team...), verb: carry, cluster: "west", tell: "NoAttributesClass", after: true},
		"… nor other attributes from being asked for":          {given: with(remote(), attributes("silver"), ungiven("gold")), verb: modify, cluster: "west"},
		"a cluster that says too much waits to be written":     {given: with(remote(infeasible("gold")), phaseBound, attributes("gold"), quietly), verb: idle, tell: "AttributesFailed", after: true},
		"attributes that nobody asks for stay":                 {given: remote(done("gold")), verb: idle},
		"at home the driver changes the volume first":          {given: with(home(having("silver")), attributes("gold"), attributed("silver")), verb: idle},
		"… then the twin records it":                           {given: with(home(having("silver")), attributes("gold"), attributed("gold")), verb: modify, cluster: keys.Home},
		"nothing is asked for a claim that is being deleted":   {given: with(remote(), attributes("gold"), deletedClaim), verb: idle},
		"nothing is asked for a claim of another volume":       {given: []change{boundTo("other"), have("west", pvcBound, published), volume("west"), attributes("gold")}, verb: idle},
		"nothing is asked of a cluster that cannot be used":    {given: with(remote(), attributes("gold"), unreachable("west", time.Minute)), verb: idle},
		"an annotation that the class lists is carried":        {given: with(remote(), team...), verb: carry, cluster: "west"},
		"… at home too":                                                      {given: with(home(), team...), verb: carry, cluster: keys.Home},
		"what is carried already":                                            {given: with(remote(carrying("team")), team...), verb: idle},
		"what changed there is put right":                                    {given: with(remote(carrying("team")), parameter(keys.Carry, "team"), annotated("team", "b")), verb: carry, cluster: "west"},
		"what the claim has no longer is taken off":                          {given: with(remote(carrying("team")), parameter(keys.Carry, "team")), verb: carry, cluster: "west"},
		"what the class does not list any more is taken off":                 {given: with(remote(carrying("team")), annotated("team", "a")), verb: carry, cluster: "west"},
		"without its class everything stays":                                 {given: with(remote(carrying("team")), func(o *decide.Observation) { o.Class = nil }), verb: idle},
		"with an invalid class everything stays":                             {given: with(remote(carrying("team")), parameter("tier", "gold")), verb: idle},
		"a quarrel about an annotation is not fought at full speed":          {given: with(remote(), append(team, func(o *decide.Observation) { o.Carried = now.Add(-time.Second) })...), verb: idle, after: true},
		"… but goes on":                                                      {given: with(remote(), append(team, func(o *decide.Observation) { o.Carried = now.Add(-time.Minute) })...), verb: carry, cluster: "west"},
		"a backing claim that is being deleted is told, not brought in step": {given: with(remote(terminating), team...), verb: idle, tell: "BackingDeleted"},
	})
}

func TestACarriedAnnotationIsTakenOffAlone(t *testing.T) {
	step := decide.Next(observe(boundTo("pvc-u1"), have("west", pvcBound, published, carrying("team")), volume("west")))
	assert.Empty(t, step.Labels)
	assert.Equal(t, map[string]any{"team": nil, keys.Carried: nil}, step.Annotations)
}
