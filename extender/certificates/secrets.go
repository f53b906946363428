package certificates

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// Keys of the Secrets. The first three are those of Secrets of type
// kubernetes.io/tls, which other tools make too.
const (
	certificateKey = corev1.TLSCertKey
	privateKey     = corev1.TLSPrivateKeyKey
	bundleKey      = corev1.ServiceAccountRootCAKey
	nextKey        = "next.crt"
	nextPrivateKey = "next.key"
	previousKey    = "previous.crt"
)

// Config says what to make and where.
type Config struct {
	Client kubernetes.Interface
	// Authority, Server and Client name the Secrets. They must exist; they may be empty.
	Authority, ServerSecret, ClientSecret types.NamespacedName
	// Service is the one whose names and addresses the server answers at.
	Service types.NamespacedName
	// Hosts are more of them.
	Hosts []string
	// ClientName is the common name of kube-scheduler's certificate.
	ClientName string
	// AuthorityLife, ServerLife and ClientLife are how long new certificates are valid.
	AuthorityLife, ServerLife, ClientLife time.Duration
	Now                                   func() time.Time
}

// Run makes what is missing and renews what gets old. It may be run twice at once:
// who comes second finds what the first one made.
func Run(ctx context.Context, config *Config) error {
	hosts, err := config.hosts(ctx)
	if err != nil {
		return err
	}
	authorities, err := config.authorities(ctx)
	if err != nil {
		return err
	}
	server := Leaf{Name: config.Service.Name, Usage: x509.ExtKeyUsageServerAuth, Hosts: hosts, Life: config.ServerLife}
	if err := config.leaf(ctx, config.ServerSecret, authorities, server); err != nil {
		return err
	}
	client := Leaf{Name: config.ClientName, Usage: x509.ExtKeyUsageClientAuth, Life: config.ClientLife}
	return config.leaf(ctx, config.ClientSecret, authorities, client)
}

// hosts returns the names and addresses of the Service, and the others.
func (c *Config) hosts(ctx context.Context) ([]string, error) {
	service, err := c.Client.CoreV1().Services(c.Service.Namespace).Get(ctx, c.Service.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Service %s: %w", c.Service, err)
	}
	name := c.Service.Name + "." + c.Service.Namespace
	hosts := append([]string{name + ".svc", name}, c.Hosts...)
	for _, address := range service.Spec.ClusterIPs {
		if address != corev1.ClusterIPNone {
			hosts = append(hosts, address)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

// authorities returns those of the Secret after all steps that are due.
func (c *Config) authorities(ctx context.Context) (*Authorities, error) {
	var authorities *Authorities
	err := c.change(ctx, c.Authority, func(data map[string][]byte) error {
		var err error
		if authorities, err = readAuthorities(data); err != nil {
			return err
		}
		for step := authorities.Plan(c.Now()); step != Keep; step = authorities.Plan(c.Now()) {
			klog.FromContext(ctx).Info("The authorities change", "secret", c.Authority, "step", step)
			if authorities, err = authorities.Take(step, c.Now(), c.AuthorityLife); err != nil {
				return err
			}
		}
		return authorities.write(data)
	})
	return authorities, err
}

// readAuthorities refuses what is there but cannot be read: to replace it unasked
// would break the trust in it.
func readAuthorities(data map[string][]byte) (*Authorities, error) {
	a := &Authorities{}
	var err error
	if a.Current, err = readAuthority(data, certificateKey, privateKey); err != nil {
		return nil, err
	}
	if a.Next, err = readAuthority(data, nextKey, nextPrivateKey); err != nil {
		return nil, err
	}
	a.Previous = parseCertificate(data[previousKey])
	return a, nil
}

func readAuthority(data map[string][]byte, certificate, key string) (*Pair, error) {
	if len(data[certificate])+len(data[key]) == 0 {
		return nil, nil
	}
	pair, err := ParsePair(data[certificate], data[key])
	if err == nil && !pair.Certificate.IsCA {
		err = errors.New("it is the certificate of no authority")
	}
	if err != nil {
		return nil, fmt.Errorf("%s and %s are no authority: mend them, or take them out to have another one made, which kube-scheduler must be given: %w", certificate, key, err)
	}
	return pair, nil
}

func (a *Authorities) write(data map[string][]byte) error {
	for _, key := range []string{nextKey, nextPrivateKey, previousKey} {
		delete(data, key)
	}
	if err := writePair(data, certificateKey, privateKey, a.Current); err != nil {
		return err
	}
	if a.Next != nil {
		if err := writePair(data, nextKey, nextPrivateKey, a.Next); err != nil {
			return err
		}
	}
	if a.Previous != nil {
		data[previousKey] = encode(a.Previous)
	}
	return nil
}

func writePair(data map[string][]byte, certificate, key string, pair *Pair) error {
	encoded, err := pair.KeyPEM()
	if err != nil {
		return err
	}
	data[certificate], data[key] = pair.CertificatePEM(), encoded
	return nil
}

// leaf keeps one certificate and the bundle beside it as wanted.
func (c *Config) leaf(ctx context.Context, secret types.NamespacedName, authorities *Authorities, want Leaf) error {
	return c.change(ctx, secret, func(data map[string][]byte) error {
		var have *x509.Certificate
		if pair, err := ParsePair(data[certificateKey], data[privateKey]); err == nil {
			have = pair.Certificate
		}
		data[bundleKey] = authorities.Bundle()
		because := authorities.Reissue(c.Now(), have, want)
		if because == "" {
			return nil
		}
		made, err := authorities.Current.Issue(c.Now(), want)
		if err != nil {
			return err
		}
		klog.FromContext(ctx).Info("A certificate is made", "secret", secret, "because", because, "expiry", made.Certificate.NotAfter)
		return writePair(data, certificateKey, privateKey, made)
	})
}

// change lets decide change the data of a Secret, and writes it if it is another
// one then. If somebody else was faster, decide looks at what that one wrote.
func (c *Config) change(ctx context.Context, name types.NamespacedName, decide func(data map[string][]byte) error) error {
	secrets := c.Client.CoreV1().Secrets(name.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret, err := secrets.Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		data := maps.Clone(secret.Data)
		if data == nil {
			data = map[string][]byte{}
		}
		if err := decide(data); err != nil {
			return err
		}
		if maps.EqualFunc(secret.Data, data, same) {
			return nil
		}
		secret.Data = data
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the Secret %s is missing: apply the manifests again, which have it empty: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("keep Secret %s up to date: %w", name, err)
	}
	return nil
}
