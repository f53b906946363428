package mtls

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
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

// JobConfig says which certificates to make and where to store them.
type JobConfig struct {
	Client kubernetes.Interface
	// Authority, ServerSecret and ClientSecret name the Secrets. They must exist; they may be empty.
	Authority, ServerSecret, ClientSecret types.NamespacedName
	// Service is the Service by whose names and addresses the server is reached.
	Service types.NamespacedName
	// Webhook, if it has a name, is a second such Service, of the webhook: it has the same certificate. There may then be no Service of
	// the extender, which runs beside a second scheduler.
	Webhook types.NamespacedName
	// Webhooks name the MutatingWebhookConfigurations whose API servers are to trust the authorities; those that are not there are
	// left out.
	Webhooks []string
	// Hosts are additional names and addresses.
	Hosts []string
	// ClientName is the common name of kube-scheduler's certificate.
	ClientName string
	// AuthorityLife, ServerLife and ClientLife are how long new certificates are valid.
	AuthorityLife, ServerLife, ClientLife time.Duration
	Now                                   func() time.Time
}

// RunCertificateJob makes certificates that are missing and renews old ones. It may run twice at
// the same time: the second run finds what the first one made.
func RunCertificateJob(ctx context.Context, config *JobConfig) error {
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
	if err := config.leaf(ctx, config.ClientSecret, authorities, client); err != nil {
		return err
	}
	for _, name := range config.Webhooks {
		if err := config.trust(ctx, name, authorities.Bundle()); err != nil {
			return err
		}
	}
	return nil
}

// hosts returns the names and addresses of the Services, and the additional ones.
func (c *JobConfig) hosts(ctx context.Context) ([]string, error) {
	hosts := slices.Clone(c.Hosts)
	for _, of := range []types.NamespacedName{c.Service, c.Webhook} {
		if of.Name == "" {
			continue
		}
		service, err := c.Client.CoreV1().Services(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && of == c.Service && c.Webhook.Name != "" {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read Service %s: %w", of, err)
		}
		name := of.Name + "." + of.Namespace
		hosts = append(hosts, name+".svc", name)
		for _, address := range service.Spec.ClusterIPs {
			if address != corev1.ClusterIPNone {
				hosts = append(hosts, address)
			}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

// trust has API servers trust a bundle of authorities when they call the webhooks of a configuration.
func (c *JobConfig) trust(ctx context.Context, name string, bundle []byte) error {
	configurations := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		configuration, err := configurations.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		same := true
		for i := range configuration.Webhooks {
			access := &configuration.Webhooks[i].ClientConfig
			same = same && bytes.Equal(access.CABundle, bundle)
			access.CABundle = bundle
		}
		if same {
			return nil
		}
		klog.FromContext(ctx).Info("API servers trust other authorities", "webhookConfiguration", name)
		_, err = configurations.Update(ctx, configuration, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("give API servers the authorities of MutatingWebhookConfiguration %s: %w", name, err)
	}
	return nil
}

// authorities returns the authorities in the Secret after all steps that are due.
func (c *JobConfig) authorities(ctx context.Context) (*Authorities, error) {
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

// readAuthorities returns an error if there is content that cannot be read: replacing it unasked
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
		return nil, fmt.Errorf("%s and %s are no authority: mend them, or take them out to have another one made, which kube-scheduler "+
			"must be given: %w", certificate, key, err)
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

// leaf makes sure that a Secret has a certificate as wanted, and the bundle of authorities.
func (c *JobConfig) leaf(ctx context.Context, secret types.NamespacedName, authorities *Authorities, want Leaf) error {
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

// change lets decide change the data of a Secret, and writes the Secret if the data differs. After
// a conflict decide is called again with what the other writer has written.
func (c *JobConfig) change(ctx context.Context, name types.NamespacedName, decide func(data map[string][]byte) error) error {
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
		if maps.EqualFunc(secret.Data, data, sameText) {
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

// Authorities are the authorities that sign or are trusted.
type Authorities struct {
	// Current signs now; nil if there is none yet.
	Current *Pair
	// Next signs after Current, and is trusted already; nil if it is too early for it.
	Next *Pair
	// Previous signed before Current, and is trusted until it expires; nil if
	// there is none.
	Previous *x509.Certificate
}

// Step is what must be done with the authorities.
type Step string

const (
	// Keep changes nothing.
	Keep Step = ""
	// Begin makes a new authority because there is no valid one. Those who trusted the last one
	// must be given the new one.
	Begin Step = "made an authority"
	// Prepare makes the next authority, which is trusted from now on.
	Prepare Step = "made the next authority, which is trusted from now on"
	// TakeOver makes the next authority the current one.
	TakeOver Step = "the next authority signs from now on"
	// Forget removes the previous authority, which has expired.
	Forget Step = "forgot the authority that has expired"
)

// Plan returns the step that is due first. After that step another one may be due.
func (a *Authorities) Plan(now time.Time) Step {
	switch {
	case a.Current == nil && a.Next == nil, a.Current != nil && a.Next == nil && now.After(a.Current.Certificate.NotAfter):
		return Begin
	case a.Next != nil && now.After(a.Next.Certificate.NotAfter):
		return Begin
	case a.Next != nil && (a.Current == nil || !now.Before(fraction(a.Current.Certificate, 5, 6))):
		return TakeOver
	case a.Next == nil && !now.Before(fraction(a.Current.Certificate, 2, 3)):
		return Prepare
	case a.Previous != nil && now.After(a.Previous.NotAfter):
		return Forget
	}
	return Keep
}

// Take returns the authorities after a step.
func (a *Authorities) Take(step Step, now time.Time, life time.Duration) (*Authorities, error) {
	after := *a
	switch step {
	case Keep:
	case Begin:
		made, err := NewAuthority(now, life)
		return &Authorities{Current: made}, err
	case Prepare:
		made, err := NewAuthority(now, life)
		if err != nil {
			return nil, err
		}
		after.Next = made
	case TakeOver:
		if a.Current != nil {
			after.Previous = a.Current.Certificate
		}
		after.Current, after.Next = a.Next, nil
	case Forget:
		after.Previous = nil
	}
	return &after, nil
}

// Bundle returns the trusted authorities in PEM, the current one first.
func (a *Authorities) Bundle() []byte {
	var bundle []byte
	for _, certificate := range a.trusted() {
		bundle = append(bundle, encode(certificate)...)
	}
	return bundle
}

func (a *Authorities) trusted() []*x509.Certificate {
	trusted := []*x509.Certificate{a.Current.Certificate}
	if a.Next != nil {
		trusted = append(trusted, a.Next.Certificate)
	}
	if a.Previous != nil {
		trusted = append(trusted, a.Previous)
	}
	return trusted
}

// Reissue returns in a few words why a certificate must be replaced; empty if it is as wanted. have
// is nil if there is none that can be read.
func (a *Authorities) Reissue(now time.Time, have *x509.Certificate, want Leaf) string {
	switch {
	case have == nil:
		return "there is none"
	case have.CheckSignatureFrom(a.Current.Certificate) != nil:
		return "another authority signs now"
	case have.Subject.CommonName != want.Name, !slices.Equal(have.ExtKeyUsage, []x509.ExtKeyUsage{want.Usage}):
		return "it is for another purpose"
	case !sameHosts(have, want.Hosts):
		return "the hosts are others now"
	case !now.Before(fraction(have, 2, 3)) && have.NotAfter.Before(a.Current.Certificate.NotAfter):
		return "two thirds of its life are over"
	}
	return ""
}

func sameHosts(have *x509.Certificate, hosts []string) bool {
	if len(have.DNSNames)+len(have.IPAddresses) != len(hosts) {
		return false
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			if !slices.ContainsFunc(have.IPAddresses, ip.Equal) {
				return false
			}
		} else if !slices.Contains(have.DNSNames, host) {
			return false
		}
	}
	return true
}

// fraction returns the time at which part/of of a certificate's lifetime is over.
func fraction(certificate *x509.Certificate, part, of int64) time.Time {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotBefore.Add(life / time.Duration(of) * time.Duration(part))
}

// sameText reports whether two bundles in PEM have the same text.
func sameText(a, b []byte) bool {
	return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b))
}

// Skew is how far the clocks of machines may differ: certificates are valid from that long before
// they are made.
const Skew = time.Hour

// Pair is a certificate and its private key.
type Pair struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// ParsePair reads a certificate and the key that belongs to it, both in PEM.
func ParsePair(certificate, key []byte) (*Pair, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read a certificate and its key: %w", err)
	}
	private, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return &Pair{Certificate: pair.Leaf, key: private}, nil
}

// CertificatePEM returns the certificate in PEM.
func (p *Pair) CertificatePEM() []byte {
	return encode(p.Certificate)
}

// KeyPEM returns the private key in PEM.
func (p *Pair) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encode(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

// parseCertificate returns nil for what is no certificate in PEM.
func parseCertificate(content []byte) *x509.Certificate {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return certificate
}

// NewAuthority makes a self-signed authority.
func NewAuthority(now time.Time, life time.Duration) (*Pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "lodestone-extender " + now.UTC().Format("2006-01-02 15:04:05")},
		NotAfter:              now.Add(life),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	return sign(now, template, nil)
}

// Leaf describes a certificate to issue.
type Leaf struct {
	// Name is its common name.
	Name string
	// Usage separates servers and clients, so that the certificate of one is not valid for the
	// other.
	Usage x509.ExtKeyUsage
	// Hosts are the DNS names and addresses of a server.
	Hosts []string
	// Life is how long the certificate is valid, unless its authority expires before.
	Life time.Duration
}

// Issue makes a certificate signed by an authority.
func (p *Pair) Issue(now time.Time, leaf Leaf) (*Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: leaf.Name},
		NotAfter:    now.Add(leaf.Life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{leaf.Usage},
	}
	if last := p.Certificate.NotAfter; template.NotAfter.After(last) {
		template.NotAfter = last
	}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(now, template, p)
}

// sign makes a key and completes the template; without parent the certificate is self-signed.
func sign(now time.Time, template *x509.Certificate, parent *Pair) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a private key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.NotBefore = now.Add(-Skew)
	signer := &Pair{Certificate: template, key: key}
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Certificate, &key.PublicKey, signer.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return &Pair{Certificate: certificate, key: key}, nil
}
