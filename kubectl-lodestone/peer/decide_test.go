package peer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

const (
	homeUID = "11111111-aaaa"
	westUID = "22222222-bbbb"
	eastUID = "33333333-cccc"
)

// situation returns two clusters that know nothing of each other.
func situation(change func(*Situation)) Situation {
	s := Situation{HomeContext: "home", RemoteContext: "west", HomeUID: homeUID, RemoteUID: westUID}
	if change != nil {
		change(&s)
	}
	return s
}

func remoteCluster(name, uid string, change func(*v1alpha1.RemoteCluster)) v1alpha1.RemoteCluster {
	r := v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{keys.ClusterUID: uid}},
		Spec: v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: "lodestone-system", Name: name,
			Key: "kubeconfig"}},
		Status: v1alpha1.RemoteClusterStatus{ClusterUID: uid},
	}
	if change != nil {
		change(&r)
	}
	return r
}

func homeCluster(id, uid string) remotev1alpha1.HomeCluster {
	return remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: remotev1alpha1.HomeClusterSpec{ClusterUID: uid}}
}

func TestDecidePlansAPeering(t *testing.T) {
	going := metav1.NewTime(time.Unix(1, 0))
	for name, test := range map[string]struct {
		options   Options
		situation func(*Situation)
		want      func(t *testing.T, p Plan)
	}{
		"nothing is there": {
			want: func(t *testing.T, p Plan) {
				assert.Equal(t, "west", p.Name)
				assert.Equal(t, "11111111", p.HomeID)
				assert.Equal(t, Token, p.Auth)
				assert.Equal(t, v1alpha1.Suffixed, p.Strategy)
				assert.Equal(t, "system:serviceaccount:lodestone-home-11111111:lodestone-home", p.User())
				assert.Equal(t, v1alpha1.SecretKeyRef{Namespace: "lodestone-system", Name: "west", Key: "kubeconfig"}, p.Secret)
				require.Len(t, p.Notes, 1)
				assert.Contains(t, p.Notes[0], "<namespace>-11111111")
			},
		},
		"names are listed": {
			options: Options{Namespaces: []string{"shop-*"}},
			want: func(t *testing.T, p Plan) {
				assert.Equal(t, v1alpha1.SameName, p.Strategy)
				assert.Empty(t, p.Notes)
			},
		},
		"names were listed before": {
			situation: func(s *Situation) {
				h := homeCluster("11111111", homeUID)
				h.Spec.Namespaces.Names = []string{"shop-*"}
				s.Homes = []remotev1alpha1.HomeCluster{h}
			},
			want: func(t *testing.T, p Plan) { assert.Equal(t, v1alpha1.SameName, p.Strategy) },
		},
		"a peering of the version before, without names": {
			situation: func(s *Situation) {
				s.Homes = []remotev1alpha1.HomeCluster{homeCluster("11111111", homeUID)}
				s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, nil)}
			},
			want: func(t *testing.T, p Plan) {
				assert.Equal(t, v1alpha1.SameName, p.Strategy, "it stays as it is")
				require.Len(t, p.Notes, 1)
				assert.Contains(t, p.Notes[0], "give --namespaces")
			},
		},
		"the provisioner has an ID by flag": {
			situation: func(s *Situation) { s.ProvisionerID = "berlin" },
			want:      func(t *testing.T, p Plan) { assert.Equal(t, "berlin", p.HomeID) },
		},
		"a name is given": {
			options: Options{Name: "occident"},
			want:    func(t *testing.T, p Plan) { assert.Equal(t, "occident", p.Name) },
		},
		"another home is served there": {
			situation: func(s *Situation) {
				s.Homes = []remotev1alpha1.HomeCluster{homeCluster("33333333", eastUID)}
			},
			want: func(t *testing.T, p Plan) {
				assert.Equal(t, v1alpha1.Suffixed, p.Strategy)
				require.Len(t, p.Notes, 1)
				assert.Contains(t, p.Notes[0], "<namespace>-11111111")
			},
		},
		"another home is served there but the user wants the same names": {
			options: Options{Strategy: "SameName", Namespaces: []string{"shop"}},
			situation: func(s *Situation) {
				s.Homes = []remotev1alpha1.HomeCluster{homeCluster("33333333", eastUID)}
			},
			want: func(t *testing.T, p Plan) { assert.Equal(t, v1alpha1.SameName, p.Strategy) },
		},
		"a run before was stopped after the HomeCluster": {
			situation: func(s *Situation) {
				s.Homes = []remotev1alpha1.HomeCluster{homeCluster("11111111", homeUID)}
			},
			want: func(t *testing.T, p Plan) {
				assert.NotNil(t, p.Home)
				require.Len(t, p.Notes, 1)
				assert.Contains(t, p.Notes[0], "it is not listed which names", "home itself is no other home")
			},
		},
		"the owner of the remote cluster made the HomeCluster": {
			situation: func(s *Situation) { s.Homes = []remotev1alpha1.HomeCluster{homeCluster("11111111", "")} },
			want:      func(t *testing.T, p Plan) { assert.NotNil(t, p.Home) },
		},
		"the peering exists under another name than the context's": {
			situation: func(s *Situation) {
				s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("occident", westUID, func(r *v1alpha1.RemoteCluster) {
					r.Spec.Namespaces.Strategy = v1alpha1.Suffixed
				})}
			},
			want: func(t *testing.T, p Plan) {
				assert.Equal(t, "occident", p.Name)
				assert.Equal(t, v1alpha1.Suffixed, p.Strategy)
				assert.Equal(t, "occident", p.Secret.Name)
			},
		},
		"the provisioner has not looked at the RemoteCluster yet": {
			situation: func(s *Situation) {
				s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) { r.Status.ClusterUID = "" })}
			},
			want: func(t *testing.T, p Plan) { assert.NotNil(t, p.Remote) },
		},
		"home logs in with a certificate": {
			situation: func(s *Situation) {
				h := homeCluster("11111111", homeUID)
				h.Spec.User = "lodestone:home:11111111"
				s.Homes = []remotev1alpha1.HomeCluster{h}
			},
			want: func(t *testing.T, p Plan) {
				assert.Equal(t, Certificate, p.Auth)
				assert.Equal(t, "lodestone:home:11111111", p.User())
			},
		},
		"the other direction exists": {
			situation: func(s *Situation) { s.Guests = []remotev1alpha1.HomeCluster{homeCluster("22222222", westUID)} },
			options:   Options{Namespaces: []string{"shop"}},
			want: func(t *testing.T, p Plan) {
				require.Len(t, p.Notes, 1)
				assert.Contains(t, p.Notes[0], "both directions")
			},
		},
		"another peering is being removed": {
			situation: func(s *Situation) {
				s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("east", eastUID, func(r *v1alpha1.RemoteCluster) { r.DeletionTimestamp = &going })}
			},
			want: func(t *testing.T, p Plan) { assert.Equal(t, "west", p.Name) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Namespace = "lodestone-system"
			plan, err := Decide(test.options, situation(test.situation))
			require.NoError(t, err)
			test.want(t, plan)
		})
	}
}

func TestASecretIsTakenOnlyIfItWasMadeForThisPeering(t *testing.T) {
	secret := func(uid string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-system", Name: "west"}}
		if uid != "" {
			s.Annotations = map[string]string{keys.ClusterUID: uid}
		}
		return s
	}
	remote := remoteCluster("west", westUID, nil)
	for name, test := range map[string]struct {
		plan   Plan
		secret *corev1.Secret
		says   string
	}{
		"of this peering":               {secret: secret(westUID)},
		"named by the RemoteCluster":    {plan: Plan{Remote: &remote}, secret: secret("")},
		"of a peering that went before": {secret: secret(eastUID), says: "left from a peering with another cluster"},
		"of somebody else":              {secret: secret(""), says: "was not made by peer"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.plan.checkSecret(test.secret, westUID)
			if test.says == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.says)
			assert.Equal(t, cli.Refused, cli.ExitCodeOf(err))
		})
	}
}

func TestDecideRefuses(t *testing.T) {
	going := metav1.NewTime(time.Unix(1, 0))
	for name, test := range map[string]struct {
		options   Options
		situation func(*Situation)
		says      string
		code      cli.ExitCode
	}{
		"a cluster with itself": {
			situation: func(s *Situation) { s.RemoteUID = homeUID },
			says:      "same cluster", code: cli.Refused,
		},
		"an ID that the provisioner does not use": {
			options:   Options{HomeID: "munich"},
			situation: func(s *Situation) { s.ProvisionerID = "berlin" },
			says:      "leave out --home-id", code: cli.Refused,
		},
		"an ID that is too long": {
			situation: func(s *Situation) { s.ProvisionerID = "a-very-long-name-of-a-cluster-in-a-far-country" },
			says:      "shorter --cluster-id", code: cli.Refused,
		},
		"a second name for one cluster": {
			options:   Options{Name: "occident"},
			situation: func(s *Situation) { s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, nil)} },
			says:      `is peered already, as "west"`, code: cli.Refused,
		},
		"one name for two clusters": {
			situation: func(s *Situation) { s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", eastUID, nil)} },
			says:      "another cluster than that of context", code: cli.Refused,
		},
		"a RemoteCluster that leads nobody knows where": {
			situation: func(s *Situation) { s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", "", nil)} },
			says:      "nobody has found out", code: cli.Refused,
		},
		"a RemoteCluster that is being removed": {
			situation: func(s *Situation) {
				s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) { r.DeletionTimestamp = &going })}
			},
			says: "being removed", code: cli.Refused,
		},
		"volumes in namespaces made by hand": {
			situation: func(s *Situation) {
				s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) {
					r.Annotations, r.Status.Volumes = nil, 3
				})}
			},
			says: "made by hand", code: cli.Refused,
		},
		"another strategy": {
			options:   Options{Strategy: "Suffixed"},
			situation: func(s *Situation) { s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, nil)} },
			says:      "cannot be changed", code: cli.Refused,
		},
		"the same names, none of which is listed": {
			options: Options{Strategy: "SameName"},
			says:    "give --namespaces", code: cli.Refused,
		},
		"another home of the same ID": {
			situation: func(s *Situation) { s.Homes = []remotev1alpha1.HomeCluster{homeCluster("11111111", eastUID)} },
			says:      "two homes cannot share an ID", code: cli.Refused,
		},
		"this home under another ID": {
			situation: func(s *Situation) { s.Homes = []remotev1alpha1.HomeCluster{homeCluster("berlin", homeUID)} },
			says:      "by another ID", code: cli.Refused,
		},
		"a HomeCluster that is being removed": {
			situation: func(s *Situation) {
				h := homeCluster("11111111", homeUID)
				h.DeletionTimestamp = &going
				s.Homes = []remotev1alpha1.HomeCluster{h}
			},
			says: "being removed", code: cli.Refused,
		},
		"a context whose name cannot be a cluster's": {
			situation: func(s *Situation) { s.RemoteContext = "admin@west" },
			says:      "--name", code: cli.Usage,
		},
		"to renew nothing": {
			options: Options{Renew: true},
			says:    "without --renew", code: cli.Failed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Namespace = "lodestone-system"
			_, err := Decide(test.options, situation(test.situation))
			require.ErrorContains(t, err, test.says)
			assert.Equal(t, test.code, cli.ExitCodeOf(err))
		})
	}
}

func TestPodRangesAreLearnedFromNodesAndKubeadm(t *testing.T) {
	node := func(ranges ...string) corev1.Node { return corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: ranges}} }
	const settings = "networking: {podSubnet: \"10.244.0.0/16,fd00:10::/48\"}"
	for name, test := range map[string]struct {
		nodes    []corev1.Node
		settings string
		want     string
	}{
		"nothing": {want: "[]"},
		"nodes": {nodes: []corev1.Node{node("10.244.1.0/24"), node("10.244.0.0/24"), node("10.244.0.0/24")},
			want: "[10.244.0.0/24 10.244.1.0/24]"},
		"an older field": {nodes: []corev1.Node{{Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24"}}}, want: "[10.244.1.0/24]"},
		"kubeadm": {nodes: []corev1.Node{node("10.244.1.0/24", "fd00:10:0:1::/64")}, settings: settings,
			want: "[10.244.0.0/16 fd00:10::/48]"},
		"kubeadm, out of date":  {nodes: []corev1.Node{node("10.9.1.0/24")}, settings: settings, want: "[10.9.1.0/24]"},
		"what cannot be read":   {nodes: []corev1.Node{node("all"), node("10.9.1.0/24")}, settings: ":", want: "[10.9.1.0/24]"},
		"nodes that tell lies":  {nodes: []corev1.Node{node("0.0.0.0/0")}, want: "[]"},
		"kubeadm without nodes": {settings: settings, want: "[10.244.0.0/16 fd00:10::/48]"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, "["+join(learn(test.nodes, test.settings))+"]")
		})
	}
}

func join(ranges remotecluster.PodRanges) string {
	text := ""
	for i, one := range ranges {
		if i > 0 {
			text += " "
		}
		text += one.String()
	}
	return text
}

func TestWhatTheRemoteClusterLetsInOfTheFabric(t *testing.T) {
	ranges := func(texts ...string) remotecluster.PodRanges {
		parsed, err := remotecluster.ParsePodRanges(texts)
		require.NoError(t, err)
		return parsed
	}
	fabric := remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) { r.Spec.PodNetwork = v1alpha1.Fabric })
	terms := &remotev1alpha1.HomeCluster{Spec: remotev1alpha1.HomeClusterSpec{Network: &remotev1alpha1.NetworkPolicy{
		PodCIDRs: []string{"10.8.0.0/16"}, Namespaces: []string{"shop"}}}}
	for name, test := range map[string]struct {
		have    *v1alpha1.RemoteCluster
		home    *remotev1alpha1.HomeCluster
		network string
		given   []string
		learned remotecluster.PodRanges
		want    *remotev1alpha1.NetworkPolicy
		says    string
		code    cli.ExitCode
	}{
		"isolated: nothing": {learned: ranges("10.0.0.0/16")},
		"isolated, with ranges of home": {given: []string{"10.0.0.0/16"}, says: "--home-pod-cidrs is for --pod-network Fabric",
			code: cli.Usage},
		"home's ranges, as its nodes tell": {network: "Fabric", learned: ranges("10.0.0.0/16"),
			want: &remotev1alpha1.NetworkPolicy{PodCIDRs: []string{"10.0.0.0/16"}}},
		"home's ranges, as the user says": {network: "Fabric", given: []string{"10.7.0.0/16"}, learned: ranges("10.0.0.0/16"),
			want: &remotev1alpha1.NetworkPolicy{PodCIDRs: []string{"10.7.0.0/16"}}},
		"nobody knows them": {network: "Fabric", says: "give them with --home-pod-cidrs", code: cli.Usage},
		"ranges that overlap": {network: "Fabric", learned: ranges("10.1.0.0/20"),
			want: &remotev1alpha1.NetworkPolicy{PodCIDRs: []string{"100.64.0.0/20"}}},
		"what is there stays": {have: &fabric, home: terms, learned: ranges("10.0.0.0/16"), want: terms.Spec.Network},
		"what the owner narrows stays": {network: "Fabric", home: terms, given: []string{"10.7.0.0/16"},
			want: &remotev1alpha1.NetworkPolicy{PodCIDRs: []string{"10.7.0.0/16"}, Namespaces: []string{"shop"}}},
		"given up, it goes":                        {have: &fabric, home: terms, network: "Isolated"},
		"what the owner wrote for later is theirs": {home: terms, want: terms.Spec.Network},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Plan{Name: "west", Remote: test.have, Home: test.home}
			err := plan.chooseTerms(Options{PodNetwork: test.network, HomePodCIDRs: test.given}, Situation{RemoteContext: "west",
				HomeRanges: test.learned, RemoteRanges: ranges("10.1.0.0/16")})
			assert.Equal(t, test.code, cli.ExitCodeOf(err))
			if test.says != "" {
				assert.ErrorContains(t, err, test.says)
				return
			}
			assert.Equal(t, test.want, plan.Network)
		})
	}
	assert.Equal(t, []string{"10.8.0.0/16"}, terms.Spec.Network.PodCIDRs, "what was read is not changed")
}

func TestNodesAndServicesSayWhichAddressesTheyHave(t *testing.T) {
	node := func(address string, labels map[string]string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "198.51.100.1"}, {Type: corev1.NodeInternalIP, Address: address}}}}
	}
	found := learnHosts([]corev1.Node{node("192.0.2.7", nil), node("192.0.2.8", map[string]string{keys.Cluster: "west"}),
		node("192.0.2.9", map[string]string{"type": "virtual-kubelet"}), node("fd00::7", nil), node("?", nil)},
		[]string{"10.96.0.0/12", "10.96.0.1", "None", "10.96.0.1"})
	var texts []string
	for _, one := range found {
		texts = append(texts, one.String())
	}
	assert.Equal(t, []string{"10.96.0.0/12", "10.96.0.1/32", "192.0.2.7/32", "fd00::7/128"}, texts)
}

func TestOnlyTheUserGivesAClusterItsRanges(t *testing.T) {
	ranges := func(texts ...string) remotecluster.PodRanges {
		parsed, err := remotecluster.ParsePodRanges(texts)
		require.NoError(t, err)
		return parsed
	}
	west := remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) { r.Spec.PodNetwork = v1alpha1.Routed })
	east := remoteCluster("east", "east-uid", func(r *v1alpha1.RemoteCluster) { r.Spec.PodCIDRs = []string{"10.2.0.0/16"} })
	known := west
	known.Spec.PodCIDRs = []string{"10.1.0.0/16"}
	for name, test := range map[string]struct {
		have       *v1alpha1.RemoteCluster
		network    string
		given      []string
		says, note string
		code       cli.ExitCode
	}{
		"isolated":              {},
		"isolated, with ranges": {given: []string{"10.1.0.0/16"}, says: "give --pod-network Routed or Fabric too", code: cli.Usage},
		"routed, without ranges": {network: "Routed",
			says: "it says itself that they are from 10.1.0.0/16; if that is right, add --pod-cidrs 10.1.0.0/16",
			code: cli.Usage},
		"confirmed":        {network: "Routed", given: []string{"10.1.0.0/16"}},
		"what is no range": {network: "Routed", given: []string{"10.1.0.1"}, says: "is no range of addresses", code: cli.Usage},
		"home's, by the fabric, which translates": {network: "Fabric", given: []string{"10.0.0.0/8"}},
		"home's": {network: "Routed", given: []string{"10.0.0.0/8"}, says: "overlaps with 10.0.0.0/16", code: cli.Refused},
		"a node's at home": {network: "Routed", given: []string{"192.0.2.0/24"},
			says: "overlaps with 192.0.2.7/32, which nodes or Services at home have", code: cli.Refused},
		"another's": {network: "Routed", given: []string{"10.2.7.0/24"}, says: `of RemoteCluster "east"`, code: cli.Refused},
		"too few": {network: "Routed", given: []string{"10.1.7.0/24"},
			note: "from 10.1.0.0/16, which is in none of --pod-cidrs"},
		"a peering from before":        {have: &west, note: "add --pod-cidrs 10.1.0.0/16"},
		"a peering that has them":      {have: &known},
		"new ranges for it":            {have: &known, given: []string{"10.1.0.0/16", "10.3.0.0/16"}},
		"ranges for one from before":   {have: &west, given: []string{"10.1.0.0/16"}},
		"routed anew, with its ranges": {have: &known, network: "Routed"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Plan{Name: "west", Remote: test.have}
			err := plan.chooseRanges(Options{PodNetwork: test.network, PodCIDRs: test.given}, Situation{RemoteContext: "west",
				Remotes:    []v1alpha1.RemoteCluster{west, east},
				HomeRanges: ranges("10.0.0.0/16"), RemoteRanges: ranges("10.1.0.0/16"), HomeHosts: ranges("192.0.2.7/32")})
			assert.Equal(t, test.code, cli.ExitCodeOf(err))
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
			}
			if test.note == "" {
				assert.Empty(t, plan.Notes)
			} else if assert.Len(t, plan.Notes, 1) {
				assert.Contains(t, plan.Notes[0], test.note)
			}
		})
	}
	plan := Plan{Name: "west"}
	err := plan.chooseRanges(Options{PodNetwork: "Routed"}, Situation{RemoteContext: "west"})
	require.ErrorContains(t, err, "ask whoever set up its pod network")
}
