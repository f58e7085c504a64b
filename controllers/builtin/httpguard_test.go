package builtin

import (
	"cmp"
	"net/netip"
	"net/url"
	"testing"
)

// Addresses that are connected to, however a name led there.
func TestConnectable(t *testing.T) {
	none, some := HTTP{}, HTTP{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/64")}}
	cases := map[string]struct {
		http    HTTP
		address string
		open    bool
	}{
		"public":                     {none, "93.184.215.14:443", true},
		"public IPv6":                {none, "[2606:2800:220:1::1]:443", true},
		"loopback":                   {none, "127.0.0.1:80", false},
		"another loopback":           {none, "127.8.8.8:80", false},
		"loopback IPv6":              {none, "[::1]:80", false},
		"private":                    {none, "10.1.2.3:80", false},
		"private 172":                {none, "172.31.255.255:80", false},
		"private 192":                {none, "192.168.0.1:80", false},
		"private, listed":            {some, "10.1.2.3:80", true},
		"private, another listed":    {some, "10.2.2.3:80", false},
		"metadata of clouds":         {none, "169.254.169.254:80", false},
		"metadata, others listed":    {some, "169.254.169.254:80", false},
		"metadata IPv6":              {none, "[fd00:ec2::254]:80", false},
		"link-local IPv6":            {none, "[fe80::1%eth0]:80", false},
		"unique local":               {none, "[fd00:1::1]:80", false},
		"unique local, listed":       {some, "[fd00:1::1]:80", true},
		"carrier-grade NAT":          {none, "100.64.0.1:80", false},
		"metadata of Alibaba":        {none, "100.100.100.200:80", false},
		"unspecified":                {none, "0.0.0.0:80", false},
		"unspecified IPv6":           {none, "[::]:80", false},
		"this network":               {none, "0.1.2.3:80", false},
		"broadcast":                  {none, "255.255.255.255:80", false},
		"multicast":                  {none, "224.0.0.1:80", false},
		"private inside IPv6":        {none, "[::ffff:10.1.2.3]:80", false},
		"private inside, listed":     {some, "[::ffff:10.1.2.3]:80", true},
		"private by NAT64":           {none, "[64:ff9b::a01:203]:80", false},
		"private by 6to4":            {none, "[2002:a01:203::1]:80", false},
		"private by IPv4-compatible": {none, "[::10.1.2.3]:80", false},
		"Teredo":                     {none, "[2001:0:a01:203::1]:80", false},
		"private by translation":     {none, "[::ffff:0:10.1.2.3]:80", false},
		"local NAT64":                {none, "[64:ff9b:1::a01:203]:80", false},
		"platform of Azure":          {none, "168.63.129.16:80", false},
		"beside it":                  {none, "168.63.129.17:80", true},
		"relays of 6to4":             {none, "192.88.99.1:80", false},
		"documentation IPv6":         {none, "[2001:db8::1]:80", false},
		"documentation IPv6, newer":  {none, "[3fff:123::1]:80", false},
		"segment routing":            {none, "[5f00::1]:80", false},
		"dummy IPv6":                 {none, "[100:0:0:1::1]:80", false},
		"site-local":                 {none, "[fec0::1]:80", false},
		"not assigned IPv6":          {none, "[4000::1]:80", false},
		"NAT64, listed":              {HTTP{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}}, "[64:ff9b::808:808]:80", true},
		"no address":                 {none, "example.org:80", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := c.http.connectable(c.address); (err == nil) != c.open {
				t.Errorf("%s: got %v, want open %t", c.address, err, c.open)
			}
		})
	}
}

// Hosts that are asked for.
func TestAllowedHosts(t *testing.T) {
	h := HTTP{AllowHosts: []string{"Example.org", "example.net:8443", "203.0.113.7", "[2001:db8::1]:80"}}
	cases := map[string]struct {
		url  string
		open bool
	}{
		"usual port":                 {"https://example.org/a", true},
		"usual port of http":         {"http://example.org/a", true},
		"usual port, written":        {"https://EXAMPLE.org.:443/a", true},
		"another port":               {"https://example.org:8443/a", false},
		"listed port":                {"https://example.net:8443/", true},
		"listed with another port":   {"https://example.net/", false},
		"part of a name":             {"https://evil-example.org/", false},
		"below a name":               {"https://a.example.org/", false},
		"name below another":         {"https://example.org.evil.com/", false},
		"user that looks like it":    {"https://example.org@evil.com/", false},
		"user":                       {"https://user:secret@example.org/", false},
		"address":                    {"http://203.0.113.7/", true},
		"the same address otherwise": {"http://3405803783/", false},
		"IPv6":                       {"http://[2001:db8::1]/", true},
		"another scheme":             {"file:///etc/passwd", false},
		"gopher":                     {"gopher://example.org/", false},
		"no host":                    {"https:///a", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			target, err := url.Parse(c.url)
			if err != nil {
				t.Fatal(err)
			}
			if err := cmp.Or(isURL(c.url), h.allows(target)); (err == nil) != c.open {
				t.Errorf("%s: got %v, want open %t", c.url, err, c.open)
			}
			if err := (HTTP{}).allows(target); err == nil {
				t.Errorf("%s is open without any leave", c.url)
			}
		})
	}
}
