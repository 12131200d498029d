"""Common short words of languages in Latin script, written for this project.

Words that say what language a text is in, not what it is about. The detector compares lists, so
a word in several of them (Spanish and Portuguese "que") is evidence for each.
"""

from __future__ import annotations

ENGLISH = "en"

_LISTS = {
    "en": """
        the a an and or but if not no yes of to in on at by for from with without into about over
        under after before between through during this that these those here there it its it's he
        she they them their we us our you your yours i i'm i've me my mine him his her is are was
        were be been being am do does did don't doesn't didn't done have has had having will would
        won't shall should can could cannot can't may might must what which who whom whose when
        where why how all any both each every few more most other some such only own same so than
        too very just also again still already then now ever never always please thanks thank
        because while until since as up down out off get got want need make made let
        """,
    "de": """
        der die das den dem des ein eine einen einem einer eines und oder aber nicht kein keine
        keinen ich du er sie es wir ihr mich mir dich dir uns euch sich mein meine meinen meinem
        meiner dein deine ihre ihren unser unsere ist sind war waren bin bist sein wird wurde
        wurden werden worden hat habe haben hatte hatten kann können konnte muss müssen soll
        sollte will wollen möchte würde auf aus bei mit nach seit von vom zu zum zur für über
        unter vor hinter zwischen durch gegen ohne um an am im in als wie wenn weil dass daß ob
        auch noch nur schon sehr mehr immer wieder bitte danke was wer wo warum wann welche
        welcher dieser diese dieses hier dort doch mal bis so da
        """,
    "fr": """
        le la les l un une des du de d et ou mais ne pas plus je tu il elle nous vous ils elles on
        me te se lui leur y en mon ma mes ton ta tes son sa ses notre nos votre vos leurs ce cet
        cette ces est sont suis es êtes était étaient être été ai as a avons avez ont avait avoir
        fait faire peut peux pouvez dois doit faut sur sous dans par pour avec sans chez vers
        entre depuis pendant après avant au aux que qui quoi dont où quand comment pourquoi si
        comme parce car donc alors aussi très bien encore toujours jamais rien tout tous toute
        toutes même autre merci bonjour c'est n'est j'ai qu'il s'il
        """,
    "es": """
        el la los las lo un una unos unas del de al a y e o u pero no ni sí yo tú él ella nosotros
        ustedes usted ellos ellas me te se nos les le mi mis tu tus su sus nuestro nuestra este
        esta estos estas ese esa eso esto es son era eran soy eres fue fueron ser sido está están
        estoy estaba he has ha han hay había haber tengo tiene tienen puedo puede pueden quiero
        quiere debo debe hace hacer en con por para sin sobre entre desde hasta hacia según que
        qué quien quién cuando cuándo donde dónde como cómo porque cual cuál si más muy también ya
        todavía siempre nunca nada todo todos toda todas otro otra mismo gracias hola favor
        """,
    "pt": """
        o a os as um uma uns umas do da dos das no na nos nas ao à aos às pelo pela de em por para
        com sem sob sobre entre até desde e ou mas não nem sim eu tu ele ela nós vós você vocês
        eles elas me te se lhe lhes meu minha meus minhas seu sua seus suas nosso nossa este esta
        esse essa isto isso aquele aquela é são era eram sou foi foram ser sido está estão estou
        estava tenho tem têm tinha ter há havia posso pode podem quero quer preciso deve fazer faz
        que quem quando onde como porque qual se mais muito também já ainda sempre nunca nada tudo
        todo todos toda todas outro outra mesmo obrigado obrigada olá
        """,
    "it": """
        il lo la i gli le un uno una del dello della dei degli delle di al allo alla ai agli alle
        a da dal dalla dai nel nella nei nelle in sul sulla su con per tra fra senza e ed o ma non
        né sì io tu lui lei noi voi loro mi ti si ci vi ne mio mia miei mie tuo tua suo sua suoi
        nostro nostra vostro questo questa questi queste quello quella è sono era erano sei siamo
        essere stato stata ho hai ha abbiamo avete hanno aveva avere posso può possono voglio
        vorrei devo deve fare fatto che chi cosa quando dove come perché quale se più molto anche
        già ancora sempre mai niente tutto tutti tutta tutte altro altra grazie ciao c'è
        """,
    "nl": """
        de het een en of maar niet geen ja nee ik jij je u hij zij ze wij we jullie hen hun mij me
        jou ons zich mijn jouw uw zijn haar onze dit dat deze die is ben bent was waren wordt
        worden werd werden geweest heb hebt heeft hebben had hadden kan kunnen kon moet moeten zal
        zou zullen wil willen mag op in uit aan bij met naar van voor over onder tussen door tegen
        zonder om te tot sinds tijdens na als dan toen wanneer omdat dat waar wat wie hoe waarom
        welke ook nog al alleen heel erg meer altijd weer nooit iets niets alle alles ander andere
        er hier daar graag bedankt dank alstublieft
        """,
    "sv": """
        den det de en ett och eller men inte ingen inga ja nej jag du han hon vi ni dem mig dig
        oss er sig min mitt mina din ditt dina hans hennes vår vårt våra deras denna detta dessa
        är var varit vara blir blev har hade ha kan kunde måste ska skulle vill får på i ur av med
        från till för om under över mellan genom mot utan vid hos efter innan som att när där hur
        vad vem varför vilken vilket också bara redan mycket mer alltid aldrig igen något allt
        alla andra här nu då så tack snälla
        """,
    "da": """
        den det de en et og eller men ikke ingen ja nej jeg du han hun vi i dem mig dig os jer sig
        min mit mine din dit dine hans hendes vores deres denne dette disse er var været være
        bliver blev har havde have kan kunne skal skulle vil ville må på ud af med fra til for om
        under over mellem gennem mod uden ved hos efter før som at når hvor hvordan hvad hvem
        hvorfor hvilken også kun allerede meget mere altid aldrig igen noget alt alle andre her nu
        så tak venligst
        """,
    "no": """
        den det de en ei et og eller men ikke ingen ja nei jeg du han hun vi dere dem meg deg oss
        seg min mitt mine din ditt dine hans hennes vår vårt våre deres denne dette disse er var
        vært være blir ble har hadde ha kan kunne skal skulle vil ville må får på i ut av med fra
        til for om under over mellom gjennom mot uten ved hos etter før som at når hvor hvordan
        hva hvem hvorfor hvilken også bare allerede veldig mye mer alltid aldri igjen noe alt alle
        andre her nå så takk vennligst
        """,
    "fi": """
        ja tai mutta ei en et emme että jos kun koska vaan niin kuin minä sinä hän me te he minun
        sinun hänen meidän teidän heidän minua minulle minulla tämä tuo se nämä nuo ne tämän sen
        on ovat oli olivat olen olet olemme ole olla ollut voi voin voitte pitää haluan haluaisin
        mitä mikä kuka missä mihin milloin miksi miten myös vielä vain jo hyvin paljon aina koskaan
        uudelleen kaikki joka sitten nyt tässä siitä kanssa ilman ennen jälkeen kiitos hei
        """,
    "pl": """
        i a oraz lub albo ale nie tak jest są był była było były być będzie będą jestem mam masz
        ma mamy mają miał może mogę można muszę trzeba chcę chciałbym ja ty on ona ono my wy oni
        mnie mi mój moja moje mojego mojej twój jego jej ich nasz nasza się to ten ta te tego tej
        tym tych w we z ze na do od po przy przez dla bez pod nad przed między o u za co kto kiedy
        gdzie jak dlaczego który która które czy że żeby bo ponieważ gdy jeśli już jeszcze tylko
        też także bardzo więcej zawsze nigdy nic wszystko proszę dziękuję
        """,
    "cs": """
        a i nebo ale ne ano je jsou byl byla bylo byly být bude budou jsem jsi jsme jste mám máte
        má mají může mohu musím chci chtěl já ty on ona ono my vy oni mě mně mi můj moje mého váš
        naše jeho její jejich se si to ten ta ty toho této tím v ve z ze na do od po při přes pro
        bez pod nad před mezi o u za s k co kdo kdy kde jak proč který která které že aby protože
        když pokud už ještě jen jenom také velmi více vždy nikdy nic všechno prosím děkuji
        """,
    "sk": """
        a aj alebo ale nie áno je sú bol bola bolo boli byť bude budú som si sme ste mám máte má
        majú môže môžem musím chcem ja ty on ona ono my vy oni mňa mi môj moja moje váš naše jeho
        jej ich sa to ten tá tie toho tejto tým v vo z zo na do od po pri cez pre bez pod nad pred
        medzi o u za s k čo kto kedy kde ako prečo ktorý ktorá ktoré že aby pretože keď ak už ešte
        len tiež veľmi viac vždy nikdy nič všetko prosím ďakujem
        """,
    "hr": """
        i a ili ali ne da je su bio bila bilo biti bit će ću sam si smo ste imam ima imaju može
        mogu moram želim ja ti on ona ono mi vi oni me mene moj moja moje vaš naš njegov njezin
        njihov se to taj ta te toga ove u iz na do od po pri kroz za bez pod nad pred između o s
        sa k što šta tko ko kada gdje gde kako zašto koji koja koje jer ako kad već još samo
        također vrlo više uvijek nikad ništa sve molim hvala nije nisam
        """,
    "ro": """
        și sau dar nu da este sunt era erau fi fost sunteți suntem am ai are avem aveți au avea
        pot poate trebuie vreau aș eu tu el ea noi voi ei ele mă mi te îmi își meu mea mei mele
        tău lui nostru acest această acești aceste acel aceea un o unui unei al a ale cu de la din
        în pe pentru fără sub peste între până după înainte prin ce cine când unde cum de care că
        să dacă pentru deja încă doar foarte mai mult mereu niciodată nimic tot toate vă rog
        mulțumesc se s-a
        """,
    "hu": """
        a az egy és vagy de nem igen van vannak volt voltak lesz lenni vagyok nincs én te ő mi ti
        ők engem nekem neked neki nekünk ez azt ezt ezek azok ennek hogy ha mert mint amikor ahol
        aki ami amely mi ki mikor hol hogyan miért melyik is már még csak nagyon több mindig soha
        semmi minden kérem köszönöm meg el fel le be ki után előtt között nélkül szeretném kell
        lehet tud tudok
        """,
    "tr": """
        ve veya ya ama fakat değil evet hayır bir bu şu o bunlar ben sen biz siz onlar beni bana
        benim senin onun bizim sizin ne kim nerede nasıl neden niçin hangi için ile gibi kadar
        daha çok en her hiç hep bazı tüm var yok oldu olan olarak olduğu ise de da ki mi mı mu mü
        sonra önce şimdi yine tekrar artık lütfen teşekkürler istiyorum ediyorum diye
        """,
    "id": """
        dan atau tetapi tapi tidak bukan ya yang ini itu saya aku kamu anda dia kami kita mereka
        adalah ada akan sudah telah belum sedang bisa dapat harus mau ingin di ke dari untuk pada
        dengan dalam oleh tentang antara tanpa seperti karena jika kalau ketika apa siapa kapan
        mana bagaimana mengapa juga hanya sangat lebih selalu lagi semua tolong terima kasih
        """,
    "ca": """
        el la els les un una uns unes del dels de al als a i o però no ni sí jo tu ell ella
        nosaltres vosaltres vostè em et es ens us meu meva seu seva nostre aquest aquesta aquests
        aquestes això és són era eren soc estic està estan he has ha hem heu han hi ha tinc té puc
        pot vull vol cal fer en amb per sense sobre entre des fins que qui quan on com perquè quin
        quina si més molt també ja encara sempre mai res tot tots tota altre gràcies hola
        """,
    "vi": """
        và hoặc nhưng không có là của cho với từ trong trên tôi bạn anh chị em chúng họ này đó kia
        được bị đã đang sẽ phải muốn cần làm gì ai khi nào đâu sao thế cũng chỉ rất nhiều hơn luôn
        lại tất cả xin cảm ơn một các những
        """,
    "tl": """
        ang ng mga sa na at o pero hindi oo ako ikaw siya kami tayo kayo sila ko mo niya namin
        natin ninyo nila ito iyan iyon dito diyan doon ay may mayroon wala para kung dahil kapag
        ano sino saan kailan paano bakit din rin lang lamang pa naman po salamat
        """,
    "sw": """
        na au lakini si hapana ndiyo mimi wewe yeye sisi nyinyi wao yangu yako yake yetu yao hii
        hiyo hili huyu ni kwa ya wa la za cha katika bila kama kwamba ili nini nani wapi lini vipi
        gani pia tu sana zaidi daima tena yote wote tafadhali asante nimekuwa ninataka
        """,
    "et": """
        ja või aga ei jah mina sina tema meie teie nemad ma sa ta me te nad mind mulle minu sinu
        see need selle seda on oli olid olen oled olema olnud saab saan peab tahan kui et sest
        kuna kus kes mis millal kuidas miks ka ainult juba veel väga rohkem alati kunagi uuesti
        kõik palun aitäh ning
        """,
    "lt": """
        ir ar arba bet ne taip aš tu jis ji mes jūs jie mane man mano tavo jo jos mūsų šis ši šie
        tas ta tai yra buvo būti bus esu turiu turi gali galiu reikia noriu kad jei nes kai kur
        kas ką kaip kodėl kuris kuri taip pat tik jau dar labai daugiau visada niekada vėl viskas
        visi su be prie iš į nuo iki prašau ačiū
        """,
    "lv": """
        un vai bet nav jā nē es tu viņš viņa mēs jūs viņi mani man mans mana tavs šis šī šie tas
        tā ir bija būt būs esmu esat var varu vajag gribu ka ja jo kad kur kas ko kā kāpēc kurš
        kura arī tikai jau vēl ļoti vairāk vienmēr nekad atkal viss visi ar bez pie no uz līdz
        lūdzu paldies
        """,
}
FUNCTION_WORDS = {language: frozenset(text.split()) for language, text in _LISTS.items()}
